"""Figures 3a and 4a of Xiang et al.: LeNet on MNIST, by mechanism and epsilon.

    python -m benchmarks.papers.xiang_figures [--data DIRECTORY] [--fast]
        [--output-dir runs/xiang]

For the data see `keras_dp_ext.data.load`. Proven mechanisms get the noise that their
proven epsilon asks for. "Algorithm 1 as printed" gets the noise of its published
budget, and its proven epsilon is reported from the least noise of every step. (It
takes a pass over all data for each update: with --fast it runs on a subset.) Writes
`xiang_figures.csv` and `xiang_figures.png`, the distortion of one release against
Theorem 3 as `xiang_distortion.png`, and prints a paragraph.
"""

from __future__ import annotations

import argparse
import csv
import pathlib

import keras
import numpy as np

import keras_dp_ext as dp
from benchmarks.models import lenet
from keras_dp_ext.accounting.calibration import calibrate_noise

# Table 1, MNIST.
LOT, CLIP, DELTA, SPLIT = 512, 0.1, 1e-5, 1 / 8

PROVEN = {
    "DP-SGD": lambda **k: dp.optimizers.DPSGD(**k),
    "directional (gradient)": lambda **k: dp.optimizers.DirectionalSGD(**k),
    "directional (w = 1)": lambda **k: dp.optimizers.DirectionalSGD(
        direction="uniform", **k
    ),
    "AdaClip": lambda **k: dp.optimizers.DirectionalSGD(direction="adaclip", **k),
}


def train(data, optimizer, epochs: int, callbacks=()) -> dict:
    """Final test accuracy and both epsilons."""
    x, y, x_test, y_test = data
    keras.utils.set_random_seed(0)
    model = lenet()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    accountant = dp.callbacks.PrivacyAccountant(delta=DELTA)
    model.fit(
        dp.data.poisson_batches(x, y, batch_size=LOT),
        epochs=epochs,
        verbose=0,
        callbacks=[*callbacks, accountant],
    )
    _, accuracy = model.evaluate(x_test, y_test, batch_size=1000, verbose=0)
    published = accountant.published_epsilon
    return {
        "accuracy": round(float(accuracy), 4),
        "epsilon": round(float(accountant.epsilon), 4),
        "published_epsilon": "" if published is None else round(float(published), 4),
    }


def load(directory: pathlib.Path | None, examples: int):
    data = dp.data.load("mnist", directory)
    return (
        np.float32(data.x_train[:examples] / data.scale),
        data.y_train[:examples].astype("int32"),
        np.float32(data.x_test[:5000] / data.scale),
        data.y_test[:5000].astype("int32"),
    )


def main(directory: pathlib.Path | None, out: pathlib.Path, fast: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    _distortion(out)
    examples, epochs = (5_000, 5) if fast else (55_000, 60)
    targets = [1.0] if fast else [0.2, 0.5, 1.0, 2.0]
    data = load(directory, examples)
    steps = epochs * round(examples / LOT)
    # A clip of 0.1 makes updates ten times shorter than one of 1.
    learning_rate = 2.0
    rows = []
    for target in targets:
        noise_multiplier = calibrate_noise(
            dp.accounting.GaussianRelease,
            dp.accounting.Poisson(LOT / examples),
            steps,
            target,
            DELTA,
        )
        for method, make in PROVEN.items():
            optimizer = make(
                learning_rate=learning_rate,
                l2_norm_clip=CLIP,
                noise_multiplier=noise_multiplier,
            )
            rows.append({"method": method, "target": target})
            rows[-1] |= train(data, optimizer, epochs)
            print(rows[-1], flush=True)
        optimizer = dp.optimizers.DirectionalSGD(
            learning_rate=learning_rate,
            l2_norm_clip=CLIP,
            guarantee="published",
            published_budget=dp.analysis.PublishedBudget(
                target, DELTA, LOT / examples, steps, SPLIT
            ),
        )
        rows.append({"method": "Algorithm 1 as printed", "target": target})
        callback = dp.callbacks.FullBatchDirection(data[0], data[1])
        rows[-1] |= train(data, optimizer, epochs, [callback])
        print(rows[-1], flush=True)
    _write(rows, out)


def _distortion(out: pathlib.Path) -> None:
    """Distortion of one release for gradients over 6 decades, against Theorem 3."""
    axes = dp.analysis.plot_distortion(
        np.geomspace(0.1, 5, 40),
        second_moments=np.logspace(-6, 0, 200),
        weights=np.geomspace(0.1, 1, 200),
    )
    axes.figure.savefig(out / "xiang_distortion.png", dpi=150)


def _write(rows: list[dict], out: pathlib.Path) -> None:
    from matplotlib.figure import Figure

    with open(out / "xiang_figures.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    axes = Figure(figsize=(6, 4), layout="constrained").add_subplot()
    for method in dict.fromkeys(row["method"] for row in rows):
        points = [(r["target"], r["accuracy"]) for r in rows if r["method"] == method]
        axes.plot(*zip(*points, strict=True), "o-", label=method)
    axes.set_xlabel("epsilon: proven, or published for Algorithm 1 as printed")
    axes.set_ylabel("test accuracy (LeNet, MNIST)")
    axes.legend(fontsize=8)
    axes.figure.savefig(out / "xiang_figures.png", dpi=150)
    printed = [row for row in rows if row["method"] == "Algorithm 1 as printed"]
    proven = [row for row in rows if row["method"] != "Algorithm 1 as printed"]
    best = max(proven, key=lambda row: row["accuracy"])
    print(
        f"Best proven: {best['method']} with {best['accuracy']:.1%} at epsilon "
        f"{best['epsilon']}. As printed, the least noise of each step proves epsilon "
        + ", ".join(
            f"{row['epsilon']:.4g} where {row['published_epsilon']} is published"
            for row in printed
        )
        + "."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--output-dir", default="runs/xiang")
    parser.add_argument("--fast", action="store_true", help="5000 examples, 5 epochs")
    options = parser.parse_args()
    main(options.data, pathlib.Path(options.output_dir), options.fast)
