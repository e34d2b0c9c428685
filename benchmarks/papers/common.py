"""What the scripts of this folder share: arguments, a training loop, three outputs.

Every script writes a CSV, a PNG and one paragraph (`.md`) into `--output-dir`. Without
data (`--data-dir`, or the environment variable KERAS_DP_DATA) only `--fast` works: it
takes the embedded digits in place of MNIST and CIFAR-10.
"""

from __future__ import annotations

import argparse
import csv
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-5


def parse_arguments(description: str, name: str) -> argparse.Namespace:
    """The arguments that all scripts have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="minutes, on small data")
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--output-dir", type=Path, default=Path("runs") / name)
    parser.add_argument("--seeds", type=int, help="runs of each; default 3, fast: 1")
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (1 if arguments.fast else 3)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    return arguments


def load(name: str, arguments: argparse.Namespace):
    """The data set, or the embedded digits in fast mode."""
    from keras_dp_ext.data import load as load_data

    return load_data("digits" if arguments.fast else name, arguments.data_dir)


def train(
    data: Any,
    build: Callable[[Any], Any],
    optimizer: Callable[[], Any],
    batch_size: int,
    epochs: int,
    seed: int,
    spent: Sequence[Any] = (),
) -> list[dict[str, float]]:
    """Trains privately; returns step, test accuracy and epsilon of every epoch.

    Args:
        data: A `DataSet`.
        build: Makes a model with logits for it.
        optimizer: Makes a private optimizer.
        batch_size: Expected examples in a lot (Poisson).
        epochs: Passes over the data.
        seed: Of the initial weights.
        spent: Layers whose adaptation is a release of its own (`PrivatePCA`).
    """
    import keras

    import keras_dp_ext as dp

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = build(data)
    model.compile(
        optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.optimizer.build(model.trainable_variables)
    ledger = model.optimizer.ledger
    for layer in spent:
        ledger.add(layer.claim, layer.sampling, layer.releases)
    model.optimizer.ledger = ledger
    lots = dp.data.poisson_batches(
        data.x_train, data.y_train.astype(np.int32), batch_size=batch_size
    )
    rows = []

    def record(epoch: int, logs: dict) -> None:
        logits = model.predict(data.x_test, batch_size=1000, verbose=0)
        accuracy = np.mean(np.argmax(logits, axis=1) == data.y_test)
        rows.append(
            {
                "epoch": epoch + 1,
                "step": int(model.optimizer.releases.numpy()),
                "accuracy": float(accuracy),
                "epsilon": float(logs["epsilon"]),
            }
        )

    model.fit(
        lots,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[
            dp.callbacks.PrivacyAccountant(delta=DELTA),
            keras.callbacks.LambdaCallback(on_epoch_end=record),
        ],
    )
    return rows


def mean_curves(
    rows: Sequence[dict], key: str, x: str = "epoch"
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each value of `key`: x, and mean and deviation of accuracy over the seeds."""
    curves = {}
    for label in dict.fromkeys(row[key] for row in rows):
        points: dict[float, list[float]] = {}
        for row in rows:
            if row[key] == label:
                points.setdefault(row[x], []).append(row["accuracy"])
        places = np.array(sorted(points))
        means = np.array([np.mean(points[place]) for place in places])
        deviations = np.array([np.std(points[place]) for place in places])
        curves[label] = places, means, deviations
    return curves


def new_axes(columns: int = 1):
    """Axes of a figure that needs no display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * columns, 4), layout="constrained")
    return figure.subplots(1, columns, squeeze=False)[0]


def draw_curves(axes: Any, curves: dict, xlabel: str, title: str) -> None:
    """Accuracy with a band of one standard deviation over the seeds."""
    for label, (places, means, deviations) in curves.items():
        (line,) = axes.plot(places, means, marker="o", markersize=3, label=label)
        axes.fill_between(
            places,
            means - deviations,
            means + deviations,
            color=line.get_color(),
            alpha=0.2,
            linewidth=0,
        )
    axes.set_xlabel(xlabel)
    axes.set_ylabel("test accuracy")
    axes.set_title(title)
    axes.legend(fontsize=8)


def write(
    arguments: argparse.Namespace,
    name: str,
    rows: Sequence[dict],
    figure: Any,
    paragraph: str,
) -> None:
    """Writes CSV, PNG and the paragraph, and prints the latter."""
    directory = arguments.output_dir
    with open(directory / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=rows[0], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _rounded(v) for k, v in row.items()})
    figure.savefig(directory / f"{name}.png", dpi=150)
    if arguments.fast:
        paragraph += " Fast mode: small data, not the size of the paper."
    text = textwrap.fill(" ".join(paragraph.split()), 88)
    (directory / f"{name}.md").write_text(text + "\n")
    print(text, flush=True)


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
