"""Figure 1 of Nasr et al.: how the values of gradients are distributed.

    python -m benchmarks.papers.nasr_figure1 [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N] [--only mnist cifar10]

Gradients of single examples over all parameters, at the start and after one and five
epochs of plain training (the text says the first epoch, the caption the fifth).
"""

from __future__ import annotations

import argparse

import keras
import numpy as np
import tensorflow as tf

from benchmarks import models
from benchmarks.papers import common

STAGES = (0, 1, 5)
EXAMPLES = 64


def standardised_gradients(model, data) -> np.ndarray:
    """Gradient values of some examples, over their standard deviation."""
    x, y = data.x_train[:EXAMPLES], data.y_train[:EXAMPLES].astype(np.int32)
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=y, logits=model(x)
        )
    jacobian = tape.jacobian(losses, model.trainable_variables)
    values = np.concatenate([np.ravel(part) for part in jacobian])
    return values / values.std()


def measure(data, seed: int) -> list[dict]:
    """Density and kurtosis at every stage of one training without privacy."""
    keras.utils.set_random_seed(seed)
    model = models.build("tanh_cnn", data)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    rows, trained = [], 0
    for stage in STAGES:
        if stage > trained:
            labels = data.y_train.astype(np.int32)
            model.fit(data.x_train, labels, 128, epochs=stage - trained, verbose=0)
            trained = stage
        values = standardised_gradients(model, data)
        density, edges = np.histogram(values, bins=81, range=(-5, 5), density=True)
        rows += [
            {
                "epoch": stage,
                "seed": seed,
                "value": float(centre),
                "density": float(height),
                "kurtosis": float(np.mean(values**4)),
            }
            for centre, height in zip(
                0.5 * (edges[1:] + edges[:-1]), density, strict=True
            )
        ]
        print(f"    epoch {stage}, kurtosis {rows[-1]['kurtosis']:.0f}", flush=True)
    return rows


def draw(arguments: argparse.Namespace, data, paper: str) -> None:
    rows = []
    for seed in range(arguments.seeds):
        print(f"[{seed + 1}/{arguments.seeds}] {paper}, seed {seed}", flush=True)
        rows += measure(data, seed)
    (axes,) = common.new_axes()
    places = sorted({row["value"] for row in rows})
    reports = []
    for stage, colour in zip(STAGES, ("#56B4E9", "#0072B2", "#D55E00"), strict=True):
        own = [row for row in rows if row["epoch"] == stage]
        densities = np.array([row["density"] for row in own]).reshape(
            arguments.seeds, -1
        )
        label = f"after epoch {stage}" if stage else "at the start"
        middle = densities.mean(axis=0)
        axes.semilogy(places, middle, color=colour, label=f"gradients {label}")
        axes.fill_between(
            places,
            densities.min(axis=0),
            densities.max(axis=0),
            color=colour,
            alpha=0.18,
        )
        kurtosis = [row["kurtosis"] for row in own[:: len(places)]]
        error = common.spread(kurtosis)
        told = f"{np.mean(kurtosis):.0f}" + (f" (± {error:.0f})" if error else "")
        reports.append(f"{told} {label}")
    normal = np.exp(-0.5 * np.square(places)) / np.sqrt(2 * np.pi)
    axes.semilogy(places, normal, "--", color="#333333", label="standard normal")
    axes.set_ylim(bottom=1e-5)
    title = f"Nasr et al., Figure 1 ({common.title_of(data, paper)})"
    common.finish(axes, title, "gradient value / standard deviation", "density")
    common.write(
        arguments,
        f"nasr_figure1_{paper}",
        rows,
        axes.figure,
        f"""Nasr et al., Figure 1, {
            common.title_of(data, paper)
        }. The paper fits a Gaussian
        to the values of gradients. Here they are far more peaked, with heavier tails:
        their kurtosis is {", ".join(reports)}, where a Gaussian has 3. Proven epsilon
        does not depend on the fit, because the bound holds for any gradient; accuracy
        does, and `Codebook` offers heavier tailed shapes at the same cost. The paper
        does not say which network or scale it plots; this is TF-Privacy's tutorial
        network with tanh, {EXAMPLES} examples. {
            common.size_note(data, paper, [], rows, max(STAGES))
        }""",
    )


def main() -> None:
    arguments = common.parse_arguments(
        __doc__, "nasr_figure1", only=["mnist", "cifar10"], fast_seeds=2
    )
    for paper in arguments.only:
        data = common.load_or_skip(paper, f"Figure 1 ({paper})", arguments)
        if data is not None:
            draw(arguments, data, paper)


if __name__ == "__main__":
    main()
