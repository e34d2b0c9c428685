"""Draws figures again from their CSV: pictures change, numbers and texts do not.

    python -m benchmarks.papers.redraw [--output-dir DIR] [--only NAME ...]

For figures whose measurement takes long or depends on the machine, and for those of
earlier trainings, which wait for the paper's number of epochs. Scripts that train draw
their finished trainings with `--finished-only`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.papers import (
    abadi_figure3,
    common,
    nasr_figure6,
    nasr_figures,
    xiang_figures,
    xiang_table2,
)

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a figure's CSV, with numbers as numbers and empty cells as `None`."""
    with open(path, newline="") as file:
        return [
            {name: _value(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _value(text: str) -> Any:
    if not text:
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def size_of(rows: list[dict], paper_epochs: int) -> str:
    """How much of the paper's training the rows are."""
    epochs = max(row["epoch"] for row in rows)
    seeds = len({row["seed"] for row in rows})
    return f"{epochs} of {paper_epochs} epochs, {seeds} seeds"


def abadi_figure3_scaled(rows: list[dict]):
    """Projections times 20, which the paper does not do, and its own learning rate."""
    (axes,) = common.new_axes(width=6.2)
    common.draw_curves(axes, rows, "noise")
    for _, _, epochs, epsilon, accuracy in abadi_figure3.LEVELS.values():
        # Another curve passes above the second one.
        offset = (-22, -16) if epsilon == 2 else (-22, 7)
        common.mark(axes, epochs, accuracy, f"paper: ε {epsilon:g}", offset=offset)
    common.log_axis(axes, [1, 2, 5, 10, 20, 50, 125, 500])
    axes.set_ylim(top=0.98)
    size = f"projections times 20, {len({row['seed'] for row in rows})} seeds"
    title = "Abadi et al., Figure 3 (MNIST), test images only"
    common.finish(axes, title, "epoch", size=size, loc="lower right")
    return axes.figure


def xiang_figure3a(rows: list[dict]):
    """The first six epochs, without Algorithm 1 as printed for w from gradients."""
    title = "Xiang et al., Figure 3a (MNIST)"
    return xiang_figures.draw_epochs(rows, title, size_of(rows, 60))


def nasr_figures4_5_7(rows: list[dict]):
    """The first five epochs."""
    return nasr_figures.draw_4_5_7(rows, "MNIST", size_of(rows, 60))


FIGURES: dict[str, Callable[[list[dict]], Any]] = {
    "abadi_figure3_scaled": abadi_figure3_scaled,
    "nasr_figure6": nasr_figure6.draw_figure,
    "nasr_figures4_5_7_mnist": nasr_figures4_5_7,
    "xiang_figure3a": xiang_figure3a,
    "xiang_table2": xiang_table2.draw,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    arguments = parser.parse_args()
    for name in arguments.only:
        drawing = FIGURES[name](read(RESULTS / f"{name}.csv"))
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        drawing.savefig(arguments.output_dir / f"{name}.png", dpi=150)
        print(f"{name}.png", flush=True)


if __name__ == "__main__":
    main()
