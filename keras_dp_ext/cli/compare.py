"""`keras-dp compare`: several mechanisms at the same proven epsilon."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_dp_ext.cli import _settings
from keras_dp_ext.cli._arguments import MECHANISM_NAMES, mechanism_name, positive_int
from keras_dp_ext.cli._figures import figure
from keras_dp_ext.cli._output import make_directory
from keras_dp_ext.cli._quiet import import_tensorflow
from keras_dp_ext.cli._settings import Settings

_EXAMPLES = """examples:
  keras-dp compare --mechanisms dpsgd,encoding,tanh,directional
  keras-dp compare --dataset mnist --mechanisms dpsgd,encoding --target-epsilon 3 \\
      --delta 1e-5 --seeds 5
"""

RUNS_FILE = "runs.csv"
TABLE_FILE = "compare.json"
FIGURE_FILE = "compare.png"

_COLUMNS = ("mechanism", "seed", "epoch", "epsilon", "test_accuracy")


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "compare",
        help="compare mechanisms at the same epsilon",
        description="Trains with several mechanisms at the same proven epsilon, from "
        "several initial weights each. Prints mean and standard deviation of the test "
        "accuracy; writes all runs (runs.csv), the table (compare.json) and accuracy "
        "against epsilon (compare.png).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--mechanisms",
        type=_mechanisms,
        default=("dpsgd", "encoding"),
        metavar="NAMES",
        help=f"separated by commas, of {MECHANISM_NAMES}, and module:Class. "
        "Default: dpsgd,encoding",
    )
    parser.add_argument(
        "--seeds", type=positive_int, default=3, metavar="N", help="default: 3"
    )
    _settings.add_arguments(parser, several=True)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output-dir", metavar="DIR", help="default: runs/compare-DATASET"
    )
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Trains everything, then prints the table."""
    directory = Path(
        arguments.output_dir or f"runs/compare-{Path(arguments.dataset).stem}"
    )
    # Wrong arguments show before TensorFlow starts, and a run before an hour's work.
    settings = [
        Settings.from_arguments(arguments, **_applicable(arguments, mechanism, seed))
        for seed in range(arguments.seeds)
        for mechanism in arguments.mechanisms
    ]
    make_directory(directory)
    import_tensorflow()
    from keras_dp_ext.cli import _experiment, _training_files
    from keras_dp_ext.presets import default_model

    # One model for all, though each mechanism alone may have another default.
    name = Path(arguments.dataset).stem
    model = arguments.model or default_model(name, *arguments.mechanisms)
    settings = [dataclasses.replace(setting, model=model) for setting in settings]
    rows: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(sys.stderr):
        data = _experiment.load_data(settings[0])
        for setting in settings:
            rows += _train(setting, data, arguments.quiet)
            _write_rows(directory / RUNS_FILE, rows)
    table = _table(rows, arguments.mechanisms)
    record = {
        "dataset": data.name,
        "data": data.note,
        "target_epsilon": settings[0].budget,
        "delta": rows[0]["delta"],
        "seeds": arguments.seeds,
        "mechanisms": table,
    }
    _training_files.write_json(directory / TABLE_FILE, record)
    print(json.dumps(record, indent=2) if arguments.json else _text(record))
    _training_files.write_figure(
        _training_files.plot_comparison,
        {name: _curve(rows, name) for name in arguments.mechanisms},
        f"{data.name}, delta {record['delta']:g}, {arguments.seeds} runs each",
        directory / FIGURE_FILE,
    )
    return 0


def _applicable(
    arguments: argparse.Namespace, mechanism: str, seed: int
) -> dict[str, Any]:
    """What differs from run to run; `--noise` goes to encoding alone."""
    noise = arguments.noise if mechanism == "encoding" else None
    return {"mechanism": mechanism, "noise": noise, "seed": seed}


def _train(settings: Settings, data: Any, quiet: bool) -> list[dict[str, Any]]:
    """One run: a row for each epoch."""
    import keras

    from keras_dp_ext.cli._experiment import Experiment

    keras.backend.clear_session()
    experiment = Experiment(settings, data)
    experiment.fit(verbose=0)
    history = experiment.model.history.history
    rows = [
        {
            "mechanism": settings.mechanism,
            "seed": settings.seed,
            "epoch": epoch + 1,
            "epsilon": epsilon,
            "test_accuracy": accuracy,
            "delta": experiment.delta,
            "noise_multiplier": experiment.noise_multiplier,
        }
        for epoch, (epsilon, accuracy) in enumerate(
            zip(history["epsilon"], history["val_accuracy"], strict=True)
        )
    ]
    if not quiet:
        print(
            f"{settings.mechanism}, seed {settings.seed}: test accuracy "
            f"{rows[-1]['test_accuracy']:.4f} at epsilon "
            f"{figure(float(rows[-1]['epsilon']))}"
        )
    return rows


def _write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _table(
    rows: Sequence[dict[str, Any]], mechanisms: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Mean and standard deviation of the last epochs' accuracies."""
    table = {}
    for mechanism in mechanisms:
        last = {row["seed"]: row for row in rows if row["mechanism"] == mechanism}
        accuracies = [row["test_accuracy"] for row in last.values()]
        table[mechanism] = {
            "epsilon": max(row["epsilon"] for row in last.values()),
            "noise_multiplier": next(iter(last.values()))["noise_multiplier"],
            "accuracy_mean": statistics.fmean(accuracies),
            "accuracy_deviation": _deviation(accuracies),
            "accuracies": accuracies,
        }
    return table


def _curve(
    rows: Sequence[dict[str, Any]], mechanism: str
) -> list[tuple[float, float, float]]:
    """Epsilon, mean and deviation of the accuracy, epoch by epoch."""
    epochs: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["mechanism"] == mechanism:
            epochs.setdefault(row["epoch"], []).append(row)
    curve = []
    for group in epochs.values():
        accuracies = [row["test_accuracy"] for row in group]
        curve.append(
            (
                max(row["epsilon"] for row in group),
                statistics.fmean(accuracies),
                _deviation(accuracies),
            )
        )
    return curve


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _text(record: dict[str, Any]) -> str:
    width = max(len("mechanism"), *map(len, record["mechanisms"]))
    lines = [
        f"{record['dataset']} ({record['data']}), delta {record['delta']:g}, "
        f"{record['seeds']} runs each",
        f"{'mechanism':{width}}  epsilon  noise   test accuracy",
    ]
    for name, entry in record["mechanisms"].items():
        lines.append(
            f"{name:{width}}  {entry['epsilon']:7.3f}  "
            f"{entry['noise_multiplier']:5.3f}   {100 * entry['accuracy_mean']:.2f} "
            f"+- {100 * entry['accuracy_deviation']:.2f} %"
        )
    return "\n".join(lines)


def _mechanisms(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(","))
    return tuple(mechanism_name(name) for name in names)
