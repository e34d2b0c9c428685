"""Xiang et al., Figures 1 and 2: noise that costs little, and the least distortion.

    python -m benchmarks.papers.xiang_figures1_2 [--fast] [--output-dir DIR]

Half a minute; `--fast` trains for fewer epochs.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers import common
from keras_dp_ext import analysis

EXAMPLES, EPOCHS = 1000, 150
LARGEST = 0.3
# theta_1 is the first input's weight into h_1, theta_6 that of h_2 into the output.
PANELS = {"θ₁ and b₃": ("theta_1", "b_3"), "θ₆ and b₃": ("theta_6", "b_3")}
PLACES = {"theta_1": (0, (0, 0)), "theta_6": (2, (1, 0)), "b_3": (3, (0,))}
SYMBOLS = {"theta_1": "θ₁", "theta_6": "θ₆", "b_3": "b₃"}


def and_samples(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit square, and whether both coordinates round to 1."""
    points = np.random.default_rng(seed).uniform(size=(EXAMPLES, 2)).astype(np.float32)
    return points, np.all(np.rint(points) == 1, axis=1).astype(np.float32)


def train(epochs: int, seed: int):
    """Figure 1a: two inputs, two sigmoid units, one output; no privacy."""
    import keras

    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input([2]),
            keras.layers.Dense(2, activation="sigmoid"),
            keras.layers.Dense(1),
        ]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss)
    points, labels = and_samples(seed)
    model.fit(points, labels, batch_size=16, epochs=epochs, verbose=0)
    return model, points, labels


def cost_surface(model, points, labels, names: tuple[str, str], size: int):
    """The cost with two parameters raised by up to `LARGEST`, and its derivatives.

    Returns:
        The costs, `[size, size]` with the first parameter down the rows, and for each
        of the two parameters the derivatives at the same places.
    """
    import keras
    import tensorflow as tf

    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    steps = np.linspace(0.0, LARGEST, size, dtype=np.float32)
    weights = model.get_weights()
    costs = np.zeros([size, size])
    slopes = np.zeros([2, size, size])
    for i, first in enumerate(steps):
        for j, second in enumerate(steps):
            moved = [weight.copy() for weight in weights]
            for name, step in zip(names, (first, second), strict=True):
                index, place = PLACES[name]
                moved[index][place] += step
            model.set_weights(moved)
            with tf.GradientTape() as tape:
                cost = loss(labels[:, None], model(points))
            gradients = tape.gradient(cost, model.trainable_variables)
            costs[i, j] = float(cost)
            for k, name in enumerate(names):
                index, place = PLACES[name]
                slopes[k, i, j] = gradients[index].numpy()[place]
    model.set_weights(weights)
    return costs, slopes


def figure_1(arguments) -> None:
    epochs, size = (30, 5) if arguments.fast else (EPOCHS, 16)
    model, points, labels = train(epochs, seed=0)
    right = (model(points).numpy()[:, 0] > 0) == (labels > 0)
    axes = common.new_axes(2, width=4.8)
    rows, told = [], []
    for one, (title, names) in zip(axes, PANELS.items(), strict=True):
        costs, slopes = cost_surface(model, points, labels, names, size)
        steps = np.linspace(0.0, LARGEST, size)
        drawn = one.contourf(steps, steps, costs, levels=12, cmap="viridis")
        one.figure.colorbar(drawn, ax=one, label="cost")
        one.set_title(f"Xiang et al., Figure 1: {title}", fontsize=11)
        one.set_xlabel(f"added to {SYMBOLS[names[1]]}")
        one.set_ylabel(f"added to {SYMBOLS[names[0]]}")
        told += [
            f"dC/d{SYMBOLS[name]} in ({slope.min():.3f}, {slope.max():.3f})"
            for name, slope in zip(names, slopes, strict=True)
        ]
        rows += [
            {
                "panel": title,
                names[0]: float(a),
                names[1]: float(b),
                "cost": float(costs[i, j]),
            }
            for i, a in enumerate(steps)
            for j, b in enumerate(steps)
        ]
    columns = ("panel", "theta_1", "theta_6", "b_3", "cost")
    rows = [{column: row.get(column) for column in columns} for row in rows]
    common.write(
        arguments,
        "xiang_figure1",
        rows,
        axes[0].figure,
        f"""Xiang et al., Figure 1. A network with two hidden sigmoid units learns x1 AND x2
        ({EXAMPLES:,} samples, {epochs} epochs, training accuracy {right.mean():.1%}; the paper:
        over 98%); then two of its parameters are raised by up to {LARGEST}. The paper says
        that the same amount of noise costs more on one parameter than on another, and in the
        direction of its derivative. Here: {"; ".join(told)}. So it is: the surface rises
        along the parameter with the larger derivative, and its least cost need not be
        at (0, 0). The sizes and signs depend on where training ends, and the paper does not tell its
        seed. What does not follow is that noise may be placed by these derivatives at no
        cost in privacy: see docs/errata.md, Equation 13.""",
    )


def figure_2(arguments) -> None:
    deviations = np.array([2.2, 1.7, 1.3, 0.9, 0.6, 0.4])
    weights = np.ones_like(deviations)
    entropies = analysis.gaussian_entropy(deviations)
    rate = 2.0
    point = analysis.distortion_rate_bound(rate, weights, entropies)
    left, right = common.new_axes(2)
    places = np.arange(1, len(deviations) + 1)
    left.bar(
        places,
        deviations**2,
        color="#CCCCCC",
        label="βᵢ: distortion if nothing is told",
    )
    left.bar(places, point.per_coordinate, color="#0072B2", label="distortion Dᵢ")
    left.axhline(point.water_level, color="#D55E00", linestyle="--", label="λ")
    common.finish(
        left,
        f"Xiang et al., Figure 2: reverse water-filling at R = {rate:g} nats",
        "coordinate i",
        "distortion",
    )
    rates = np.linspace(0.0, 9.0, 25 if arguments.fast else 121)
    least = [
        analysis.distortion_rate_bound(r, weights, entropies).distortion for r in rates
    ]
    # By the other lemma, at other places: the two curves must coincide.
    distortions = np.linspace(0.3, float(np.sum(deviations**2)), 15)
    inverse = [
        analysis.rate_distortion_bound(d, weights, entropies) for d in distortions
    ]
    # What independent Gaussian noise of one size reaches: a channel above the bound.
    noise = np.geomspace(0.2, 30, 80)
    achieved = 0.5 * np.sum(
        np.log1p(deviations[None] ** 2 / noise[:, None] ** 2), axis=1
    )
    distorted = len(deviations) * noise**2
    right.plot(rates, least, color="#0072B2", label="D*(R), Theorem 3")
    right.plot(inverse, distortions, "o", color="#D55E00", label="R*(D), Lemma 4")
    shown = distorted < 1.15 * np.sum(deviations**2)
    right.plot(
        achieved[shown],
        distorted[shown],
        color="#009E73",
        label="isotropic Gaussian noise",
    )
    common.finish(
        right, "The bound and what noise reaches", "rate R in nats", "distortion D"
    )
    rows = [
        {"series": "theorem 3", "rate": float(r), "distortion": float(d)}
        for r, d in zip(rates, least, strict=True)
    ]
    rows += [
        {"series": "lemma 4", "rate": float(r), "distortion": float(d)}
        for r, d in zip(inverse, distortions, strict=True)
    ]
    common.write(
        arguments,
        "xiang_figure2",
        rows,
        left.figure,
        f"""Xiang et al., Figure 2, Theorem 3 and Lemma 4. Left: at {rate:g} nats, coordinates
        whose variance exceeds the level λ = {point.water_level:.2f} are told up to a
        distortion of λ, the others not at all. Right: the least distortion at each rate
        and the least rate at each distortion are one curve, as the paper proves; noise of
        one size for all coordinates stays above it. The paper's figure is a sketch
        without numbers; the variances here ({", ".join(f"{d * d:.2g}" for d in deviations)})
        are ours.""",
    )


def main() -> None:
    arguments = common.parse_arguments(
        __doc__, "xiang_figures1_2", data=False, only=["1", "2"]
    )
    if "1" in arguments.only:
        figure_1(arguments)
    if "2" in arguments.only:
        figure_2(arguments)


if __name__ == "__main__":
    main()
