"""DP-SGD against correlated noise at equal epsilon, on scattering features.

    python -m benchmarks.correlated_noise --data-dir DIR --cache-dir CACHE

A linear model on scattering features (the preset `scatter_linear`; those of CIFAR-10 averaged
over 2 x 2 places, so that a run takes a quarter of the time), lots of 512, a few epochs.

With sampling, amplified: DP-SGD on Poisson lots, BandMF on cyclic Poisson lots; the number of
bands is the one with the least error in theory. Without, on data in a fixed order: DP-SGD, the
tree (DP-FTRL) and BLT.

The learning rate is chosen for each method and epsilon, in the same way for all: on held out
training examples with a seed of its own, from 2 on in factors of 2 while accuracy rises. Test
accuracy is that of three further seeds, trained on all examples. Runs that have ended are kept
in the cache, and not made again.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import gc
import json
import os
import time
from pathlib import Path

import numpy as np

#: How lots are drawn and what the figure calls it, by method. The first three come first.
METHODS = {
    "dpsgd": ("poisson", "DP-SGD (Poisson)"),
    "bandmf": ("cyclic-poisson", "BandMF (cyclic Poisson)"),
    "dpftrl": ("fixed-order", "DP-FTRL, tree (fixed order)"),
    "blt": ("fixed-order", "BLT (fixed order)"),
    "dpsgd-fixed": ("fixed-order", "DP-SGD (fixed order)"),
}
EPSILONS = (1.0, 3.0, 8.0)
FIRST_RATE = 2.0
SEEDS = (1, 2, 3)
BATCH_SIZE = 512
EPOCHS = {"mnist": 5, "cifar10": 8}
MOMENTUM = 0.9
CLIP = 0.1
DELTA = 1e-5
HELD_OUT = 0.1
BANDS = (1, 2, 4, 8, 16, 32)


def features(name: str, data_dir: str, cache: Path):
    """The data set with scattering features, which take minutes, from the cache."""
    import keras

    from keras_dp_ext.data import load
    from keras_dp_ext.presets import with_features

    path = cache / f"{name}_features.npz"
    data = load(name, data_dir)
    if not path.exists():
        made = with_features("scatter_linear", data)
        average = keras.layers.AveragePooling2D(2 if name == "cifar10" else 1)
        parts = {"x_train": made.x_train, "x_test": made.x_test}
        for part, inputs in parts.items():
            chunks = np.array_split(inputs, 100)
            averaged = [average(chunk.astype(np.float32)) for chunk in chunks]
            parts[part] = np.concatenate(averaged).astype(np.float16)
        np.savez(path, **parts)
    with np.load(path) as arrays:
        changes = {part: arrays[part].astype(np.float32) for part in arrays}
    return dataclasses.replace(data, **changes, scale=1.0)


@functools.cache
def best_bands(num_examples: int, epsilon: float, epochs: int) -> int:
    """The number of bands with the least error of the weights; looks at no data."""
    from keras_dp_ext.accounting import CorrelatedRelease, TrainingPlan
    from keras_dp_ext.accounting.calibration import calibrate_noise
    from keras_dp_ext.noise import Banded
    from keras_dp_ext.noise.correlated.toeplitz import mean_squared_error

    errors = {}
    for bands in BANDS:
        if bands * BATCH_SIZE > num_examples:
            continue
        plan = TrainingPlan(
            num_examples, BATCH_SIZE, epochs, sampling="cyclic-poisson", cycle=bands
        )
        steps = plan.required_releases()
        noise = Banded(bands, steps, momentum=MOMENTUM)
        sigma = calibrate_noise(
            lambda scale, noise=noise: CorrelatedRelease(scale, noise),
            plan.scheme,
            steps,
            epsilon,
            DELTA,
            tolerance=0.01,
        )
        variance = mean_squared_error(noise.coefficients, steps, MOMENTUM)
        errors[bands] = sigma**2 * variance
    return min(errors, key=errors.get)


@functools.cache
def mechanism_arguments(
    method: str, num_examples: int, epsilon: float, epochs: int
) -> dict:
    """Noise, and what else follows from the plan; looks at no data."""
    own = {}
    if method == "bandmf":
        own["bands"] = best_bands(num_examples, epsilon, epochs)
    if method in ("bandmf", "blt"):
        own["strategy_momentum"] = MOMENTUM
    optimizer = optimizer_class(method).for_budget(
        epsilon=epsilon,
        delta=DELTA,
        num_examples=num_examples,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        sampling=METHODS[method][0],
        l2_norm_clip=CLIP,
        **own,
    )
    return optimizer.mechanism.get_config()


def optimizer_class(method: str):
    from keras_dp_ext import optimizers

    return {
        "dpsgd": optimizers.DPSGD,
        "dpsgd-fixed": optimizers.DPSGD,
        "bandmf": optimizers.BandMFSGD,
        "dpftrl": optimizers.DPFTRLSGD,
        "blt": optimizers.BLTSGD,
    }[method]


def train(data, method: str, epsilon: float, rate: float, seed: int, held_out: bool):
    """One training; its accuracy on held out or on test examples, and its epsilon."""
    import keras

    import keras_dp_ext as dp
    from keras_dp_ext.presets import build_model

    keras.utils.set_random_seed(seed)
    epochs = EPOCHS[data.name]
    x, y = data.x_train, data.y_train.astype(np.int32)
    x_test, y_test = data.x_test, data.y_test.astype(np.int32)
    if held_out:
        cut = int(len(x) * (1 - HELD_OUT))
        x, x_test, y, y_test = x[:cut], x[cut:], y[:cut], y[cut:]
    own = mechanism_arguments(method, len(x), epsilon, epochs)
    optimizer = optimizer_class(method)(learning_rate=rate, momentum=MOMENTUM, **own)
    lots = {
        "poisson": lambda: dp.data.poisson_batches(x, y, BATCH_SIZE),
        "cyclic-poisson": lambda: dp.data.cyclic_poisson_batches(
            x, y, BATCH_SIZE, cycle=own["bands"]
        ),
        "fixed-order": lambda: dp.data.fixed_order_batches(x, y, BATCH_SIZE),
    }[METHODS[method][0]]()
    model = build_model("scatter_linear", data)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss)
    accountant = dp.callbacks.PrivacyAccountant(delta=DELTA)
    start = time.process_time()
    model.fit(lots, epochs=epochs, verbose=0, callbacks=[accountant])
    logits = model.predict(x_test, batch_size=2048, verbose=0)
    result = {
        "accuracy": float(np.mean(np.argmax(logits, axis=-1) == y_test)),
        "epsilon_proven": accountant.epsilon,
        "noise_multiplier": optimizer.mechanism.noise_multiplier,
        "bands": own.get("bands"),
        "steps": int(optimizer.releases.numpy()),
        "processor_seconds": time.process_time() - start,
    }
    del model, optimizer, lots, accountant
    keras.backend.clear_session()
    gc.collect()
    return result


def kept(cache: Path, data, *run) -> dict:
    """The result of `train`, made once."""
    path = cache / f"{'_'.join(map(str, (data.name, *run)))}.json"
    if not path.exists():
        path.write_text(json.dumps(train(data, *run)))
        result = json.loads(path.read_text())
        print(data.name, *run, f"{result['accuracy']:.4f}", flush=True)
    return json.loads(path.read_text())


def best_rate(data, cache: Path, method: str, epsilon: float) -> float:
    """Up or down from the first rate in factors of 2, while accuracy rises."""

    def accuracy(rate: float) -> float:
        return kept(cache, data, method, epsilon, rate, 0, True)["accuracy"]

    rate = FIRST_RATE
    factor = 2.0 if accuracy(2 * rate) > accuracy(rate) else 0.5
    while accuracy(rate * factor) > accuracy(rate):
        rate *= factor
    return rate


def evaluate(data, cache: Path, method: str, epsilon: float) -> dict:
    """One line of the table."""
    rate = best_rate(data, cache, method, epsilon)
    for seed in SEEDS:
        kept(cache, data, method, epsilon, rate, seed, False)
    return summary(data, cache, method, epsilon, rate)


def summary(data, cache: Path, method: str, epsilon: float, rate: float) -> dict:
    """One line of the table."""
    runs = [kept(cache, data, method, epsilon, rate, s, False) for s in SEEDS]
    accuracies = [run["accuracy"] for run in runs]
    return {
        "dataset": data.name,
        "epsilon": epsilon,
        "method": method,
        "accuracy": round(float(np.mean(accuracies)), 4),
        "deviation": round(float(np.std(accuracies, ddof=1)), 4),
        "epsilon_proven": round(runs[0]["epsilon_proven"], 3),
        "noise_multiplier": round(runs[0]["noise_multiplier"], 3),
        "bands": runs[0]["bands"] or "",
        "learning_rate": rate,
        "steps": runs[0]["steps"],
    }


def plot(rows: list[dict], path: Path) -> None:
    """Accuracy over epsilon, one panel for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(4.6 * len(names), 4.0), squeeze=False
    )
    for panel, name in zip(panels[0], names, strict=True):
        for method, (sampling, label) in METHODS.items():
            own = [r for r in rows if (r["dataset"], r["method"]) == (name, method)]
            panel.errorbar(
                [float(r["epsilon"]) for r in own],
                [100 * float(r["accuracy"]) for r in own],
                [100 * float(r["deviation"]) for r in own],
                linestyle="--" if sampling == "fixed-order" else "-",
                marker="o",
                capsize=3,
                label=label,
            )
        panel.set(
            title=name, xscale="log", xlabel="epsilon (delta 1e-5)", xticks=EPSILONS
        )
        panel.set_xticklabels([f"{epsilon:g}" for epsilon in EPSILONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("test accuracy, %")
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--datasets", default="mnist,cifar10")
    parser.add_argument("--cache-dir", type=Path, required=True)
    results = Path("docs/results/correlated_noise.csv")
    parser.add_argument("--results", type=Path, default=results)
    arguments = parser.parse_args()
    arguments.cache_dir.mkdir(parents=True, exist_ok=True)
    names = arguments.datasets.split(",")
    sets = {n: features(n, arguments.data_dir, arguments.cache_dir) for n in names}
    rows = []
    for method in METHODS:
        for name in names:
            for epsilon in EPSILONS:
                rows.append(evaluate(sets[name], arguments.cache_dir, method, epsilon))
                write(rows, arguments.results)


def write(rows: list[dict], path: Path) -> None:
    """All that is there so far."""
    rows = sorted(rows, key=lambda row: (row["dataset"] != "mnist", row["epsilon"]))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
