"""The README's figure: what privacy costs, in accuracy and in time.

    python -m benchmarks.overview_figure        (from the files in docs/results)

Nothing is trained here; the files that it reads name their commands.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"

_NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "adult": "Adult (a table)",
    "imdb": "IMDB (text)",
    "cifar10": "CIFAR-10",
}
_MODELS = {"W1": "MNIST CNN", "W3": "CIFAR CNN"}


def _rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def private_accuracies() -> dict[str, float]:
    """Test accuracy at epsilon 3, by data set."""
    rows = [row for row in _rows("headline.csv") if float(row["target_epsilon"]) == 3]
    return {row["dataset"]: float(row["accuracy_mean"]) for row in rows}


def plain_accuracies() -> dict[str, float]:
    """Test accuracy of logistic regression without privacy, where it was measured."""
    rows = _rows("logistic_regression.csv")
    return {row["dataset"]: float(row["test_accuracy"]) for row in rows}


def step_times() -> dict[str, dict[str, float]]:
    """Milliseconds of a step, by model and by who makes it."""
    measured = json.loads((RESULTS / "step_time.json").read_text())
    times = {}
    for key, name in _MODELS.items():
        # Median, and quartiles behind it.
        milliseconds = {k: v["ms"][0] for k, v in measured[key].items()}
        times[name] = {
            "plain Keras": milliseconds["plain"],
            "private, keras_dp_ext": milliseconds["dpsgd"],
            "private, Opacus (its fastest)": min(
                v for k, v in milliseconds.items() if k.startswith("opacus")
            ),
        }
    return times


def draw(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 3.4), layout="constrained", width_ratios=[1.2, 1]
    )
    private, plain = private_accuracies(), plain_accuracies()
    for row, key in enumerate(_NAMES):
        left.barh(row, private[key], color="C0", height=0.55)
        left.text(private[key] - 0.01, row, f"{private[key]:.1%}", ha="right",
                  va="center", color="white", fontweight="bold")  # fmt: skip
        if key in plain:
            label = "without privacy" if key == "imdb" else None
            left.plot([plain[key]] * 2, [row - 0.38, row + 0.38], "k", label=label)
    left.set_yticks(range(len(_NAMES)), _NAMES.values())
    left.invert_yaxis()
    left.set(xlim=(0, 1.02), title="Test accuracy at epsilon 3 (delta 1e-5)")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
    times = step_times()
    colors = ("0.7", "C0", "C1")
    for row, by_maker in enumerate(times.values()):
        for place, (maker, ms) in enumerate(by_maker.items()):
            ratio = ms / by_maker["plain Keras"]
            y = row + (place - 1) * 0.26
            label = maker if row == 0 else None
            right.barh(y, ratio, height=0.24, color=colors[place], label=label)
            right.text(ratio + 0.05, y, f"{ms:.0f} ms", va="center", fontsize=9)
    right.set_yticks(range(len(times)), times)
    right.invert_yaxis()
    right.set(xlim=(0, 5.6), title="A training step, over plain Keras")
    right.legend(loc="upper right", fontsize=8, frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(RESULTS / "overview.png")
