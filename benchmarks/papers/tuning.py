"""Learning rates of the papers' figures, chosen on held out training images.

The papers do not tell their learning rates (but Abadi et al.), and methods differ in the
length of their updates: one rate for all would compare rates, not methods. A script's
`--tune` trains each method with rates that are a factor of 2 apart, for ten epochs on
five sixths of the training images, and looks at the accuracy on the last sixth. A search
whose best rate is its lowest or highest one goes on in that direction.

`learning_rates_NAME.csv` is the table, and where the scripts take their rates from. On
private data such a search would cost privacy, too.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers import common
from benchmarks.papers.runs import Case, run_cases

EPOCHS, FAST_EPOCHS = 10, 2
_RESULTS = Path(__file__).parents[2] / "docs" / "results"
_COLUMNS = ("method", "learning_rate", "epoch", "step", "accuracy", "epsilon")
# How often a search at the edge of its rates goes on.
_EXTENSIONS = 3


def tune(
    arguments: argparse.Namespace,
    name: str,
    data: Any,
    rates: dict[str, Sequence[float]],
    case: Callable[[str, float], Case],
) -> None:
    """Makes the table, its figure and its paragraph.

    Args:
        arguments: Of the script.
        name: Of the table, such as "nasr_mnist".
        data: All training images.
        rates: For each method what to try first, in rising order.
        case: Makes the training of a method at a rate; its epochs are replaced.
    """
    part = hold_out(data)
    epochs = FAST_EPOCHS if arguments.fast else min(EPOCHS, arguments.epochs or EPOCHS)

    def measure(method: str, tried: Sequence[float]) -> list[dict]:
        cases = [
            dataclasses.replace(
                case(method, rate),
                labels={"method": method, "learning_rate": rate},
                epochs=epochs,
                evaluate_every=None,
                training_accuracy=False,
            )
            for rate in tried
        ]
        # One seed: a table to choose by, not a result.
        store = f"learning_rates_{name}"
        rows = run_cases(arguments, store, part, cases, seeds=[0], wait=True)
        return [row for row in rows if row["epoch"] == epochs]

    listing = arguments.plan or arguments.measure
    table: list[dict] = []
    for method, first in rates.items():
        tried = list(first)
        rows = measure(method, tried)
        for _ in range(0 if listing or arguments.fast else _EXTENSIONS):
            if len(rows) < len(tried) or not (beyond := _beyond(rows, tried)):
                break
            tried = sorted([*tried, beyond])
            rows = measure(method, tried)
        table += rows
    if table and not listing:
        others = [
            row
            for row in _table(arguments.output_dir, name)
            if row["method"] not in rates
        ]
        _write(arguments, name, others + table, part, epochs)


def _beyond(rows: Sequence[dict], tried: Sequence[float]) -> float | None:
    """The next rate if the best one is at an edge."""
    best = max(rows, key=lambda row: row["accuracy"])["learning_rate"]
    if best == tried[-1]:
        return 2 * best
    return best / 2 if best == tried[0] else None


def hold_out(data: Any) -> Any:
    """The data with the last sixth of its training images to test on."""
    count = len(data.x_train) // 6
    return dataclasses.replace(
        data,
        x_train=data.x_train[:-count],
        y_train=data.y_train[:-count],
        x_test=data.x_train[-count:],
        y_test=data.y_train[-count:],
    )


def _write(
    arguments: argparse.Namespace, name: str, table: list[dict], part: Any, epochs: int
) -> None:
    (axes,) = common.new_axes()
    methods = list(dict.fromkeys(row["method"] for row in table))
    reports = []
    for method, style in common.styles(methods).items():
        own = [row for row in table if row["method"] == method]
        own.sort(key=lambda row: row["learning_rate"])
        rates = [row["learning_rate"] for row in own]
        accuracies = [row["accuracy"] for row in own]
        axes.plot(rates, accuracies, label=method, **style)
        best = max(own, key=lambda row: row["accuracy"])
        at_edge = " (the end of the search)" if _beyond(own, rates) else ""
        reports.append(
            f"{method} {best['learning_rate']:g}, {best['accuracy']:.1%}{at_edge}"
        )
    common.log_axis(axes, sorted({row["learning_rate"] for row in table}))
    size = f"after {epochs} epochs, {len(part.x_test):,} held out training images"
    title = f"Learning rates ({name.replace('_', ', ')})"
    common.finish(
        axes,
        title,
        "learning rate",
        "accuracy on held out images",
        size=f"{size}, 1 seed",
    )
    common.write(
        arguments,
        f"learning_rates_{name}",
        [{column: row[column] for column in _COLUMNS} for row in table],
        axes.figure,
        f"""Learning rates for the figures of {name}: the best of those tried, after
        {epochs} epochs on {len(part.x_train):,} training images, by the accuracy on
        {len(part.x_test):,} others that were held out: {"; ".join(reports)}. One seed.
        On private data such a search would cost privacy, too.""",
    )


def _table(directory: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table that was made before."""
    path = directory / f"learning_rates_{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [
            {**row, **{column: float(row[column]) for column in _COLUMNS[1:]}}
            for row in csv.DictReader(file)
        ]


def tuned_rates(arguments: argparse.Namespace, name: str) -> dict[str, float]:
    """The best rate of each method, from the output directory or the committed table."""
    if arguments.fast:
        return {}
    rows = _table(arguments.output_dir, name) or _table(_RESULTS, name)
    rows.sort(key=lambda row: row["accuracy"])
    return {row["method"]: row["learning_rate"] for row in rows}


def rates_note(
    arguments: argparse.Namespace, name: str, rates: dict[str, float]
) -> str:
    """Which rates were used, and where they come from."""
    tuned = tuned_rates(arguments, name)
    each = "; ".join(f"{method} {rate:g}" for method, rate in rates.items())
    if not tuned:
        return f"Learning rates, not tuned on this data: {each}."
    guessed = [method for method in rates if method not in tuned]
    rest = f" (not tuned: {', '.join(guessed)})" if guessed else ""
    return (
        f"Learning rates, the best of each method on held out training images after "
        f"{EPOCHS} epochs (learning_rates_{name}): {each}{rest}."
    )
