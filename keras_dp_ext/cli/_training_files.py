"""What a training leaves behind: history, privacy statement, figure."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_dp_ext.callbacks import PrivacyAccountant
from keras_dp_ext.cli._figures import plain

#: Columns of history.csv. Losses and metrics of the training data are left out:
#: they are computed from private examples without noise.
COLUMNS = (
    "epoch",
    "releases",
    "epsilon",
    "published_epsilon",
    "val_accuracy",
    "val_loss",
)


class HistoryWriter(keras.callbacks.Callback):
    """Appends a line to history.csv after every epoch.

    Args:
        path: The file. Lines of epochs that are repeated after an interruption are
            kept: they happened.
    """

    def __init__(self, path: Path):
        super().__init__()
        self._path = path

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        row = {
            **{name: value for name, value in (logs or {}).items() if name in COLUMNS},
            "epoch": epoch + 1,
            "releases": int(self.model.optimizer.releases.numpy()),
        }
        new = not self._path.exists()
        with self._path.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow(row)


class ModelWriter(keras.callbacks.Callback):
    """Saves the model after every epoch; there is always a whole one.

    Args:
        path: The `.keras` file.
    """

    def __init__(self, path: Path):
        super().__init__()
        self._path = path

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        save_model(self.model, self._path)


def save_model(model: keras.Model, path: Path) -> None:
    """Saves a model; an interruption leaves the old file or the new one."""
    temporary = path.with_name(f"unfinished-{path.name}")
    model.save(temporary)
    temporary.replace(path)


def privacy_record(accountant: PrivacyAccountant) -> dict[str, Any]:
    """Figures, ledger and statement, as JSON."""
    optimizer = accountant.model.optimizer
    ledger = optimizer.ledger
    return {
        "epsilon": plain(accountant.epsilon),
        "published_epsilon": plain(accountant.published_epsilon),
        "delta": accountant.delta,
        "best_attack": accountant.best_attack.serialize(),
        "target_epsilon": accountant.target_epsilon,
        "accountant": accountant.accountant,
        "releases": accountant.releases,
        "caveats": ledger.caveats(),
        "statement": accountant.statement(),
        "ledger": json.loads(ledger.to_json()),
    }


def write_json(path: Path, record: Any) -> None:
    """Writes JSON that people can read."""
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")


def write_figure(plot: Callable[..., None], *arguments: Any) -> None:
    """Plots, or warns: a missing library must not make a training a failure."""
    try:
        plot(*arguments)
    except ImportError as error:
        warnings.warn(str(error), stacklevel=2)


def plot_training(
    history: Sequence[Mapping[str, float]], title: str, path: Path
) -> None:
    """Accuracy and epsilon per epoch, as a PNG file."""
    pyplot = _pyplot()
    figure, accuracy_axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    accuracy_axis.plot(
        epochs, [row["val_accuracy"] for row in history], "C0o-", label="test accuracy"
    )
    accuracy_axis.set_xlabel("epoch")
    accuracy_axis.set_ylabel("test accuracy", color="C0")
    accuracy_axis.grid(alpha=0.3)
    epsilon_axis = accuracy_axis.twinx()
    epsilon_axis.plot(epochs, [row["epsilon"] for row in history], "C1s--")
    epsilon_axis.set_ylabel("proven epsilon", color="C1")
    epsilon_axis.set_ylim(bottom=0)
    accuracy_axis.set_title(title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_comparison(
    curves: Mapping[str, Sequence[tuple[float, float, float]]], title: str, path: Path
) -> None:
    """Accuracy against epsilon for several mechanisms, as a PNG file.

    Args:
        curves: For each mechanism triples of epsilon, mean accuracy and standard
            deviation.
        title: Title of the figure.
        path: The file.
    """
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for index, (name, points) in enumerate(curves.items()):
        epsilon, mean, deviation = zip(*points, strict=True)
        axis.plot(epsilon, mean, f"C{index}o-", markersize=3, label=name)
        low = [m - d for m, d in zip(mean, deviation, strict=True)]
        high = [m + d for m, d in zip(mean, deviation, strict=True)]
        axis.fill_between(epsilon, low, high, color=f"C{index}", alpha=0.2)
    axis.set_xlabel("proven epsilon")
    axis.set_ylabel("test accuracy")
    axis.set_title(title)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            "No figure was written, for lack of matplotlib: `pip install "
            "matplotlib`. Everything else is there."
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
