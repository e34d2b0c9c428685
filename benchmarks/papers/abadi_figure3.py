"""Figure 3 of Abadi et al.: accuracy over epochs at three noise levels, with PCA.

    python -m benchmarks.papers.abadi_figure3 [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N]

60 private principal components, 1000 hidden units, clip 4, lots of 600 (q = 0.01).
"""

from __future__ import annotations

import keras

import keras_dp_ext as dp
from benchmarks.papers import common

# (noise, noise of the PCA, epochs at which the paper stops, its epsilon, its accuracy)
LEVELS = {
    "large noise": (8.0, 16.0, 20, 0.5, 0.90),
    "medium noise": (4.0, 7.0, 125, 2.0, 0.95),
    "small noise": (2.0, 4.0, 500, 8.0, 0.97),
}


def main() -> None:
    arguments = common.parse_arguments(__doc__, "abadi_figure3")
    data = common.load("mnist", arguments)
    components, hidden = (20, 100) if arguments.fast else (60, 1000)
    rows = []
    for label, (noise, pca_noise, epochs, _, _) in LEVELS.items():
        if arguments.fast:
            epochs = min(epochs, 30)
        for seed in range(arguments.seeds):
            pca = dp.data.PrivatePCA(components, noise_multiplier=pca_noise)
            pca.adapt(data.x_train)

            def build(data, pca=pca):
                return keras.Sequential(
                    [
                        keras.Input(data.x_train.shape[1:]),
                        pca,
                        # A public constant: projections of unit rows are small.
                        keras.layers.Rescaling(20.0),
                        keras.layers.Dense(hidden, activation="relu"),
                        keras.layers.Dense(data.num_classes),
                    ]
                )

            def optimizer(noise=noise, epochs=epochs):
                # As in the paper: from 0.1 to 0.052 in ten epochs, then constant.
                steps = 100 * min(10, epochs)
                rate = keras.optimizers.schedules.PolynomialDecay(0.1, steps, 0.052)
                return dp.optimizers.DPSGD(
                    learning_rate=rate, l2_norm_clip=4.0, noise_multiplier=noise
                )

            curve = common.train(
                data,
                build,
                optimizer,
                batch_size=round(0.01 * len(data.x_train)),
                epochs=epochs,
                seed=seed,
                spent=[pca],
            )
            rows += [{"level": label, "seed": seed, **point} for point in curve]
    (axes,) = common.new_axes()
    curves = common.mean_curves(rows, "level")
    common.draw_curves(axes, curves, "epoch", f"Abadi et al., Figure 3 ({data.name})")
    axes.set_xscale("log")
    reports = []
    for label, (*_, published, accuracy) in LEVELS.items():
        last = [row for row in rows if row["level"] == label][-1]
        reports.append(
            f"{label}: {curves[label][1][-1]:.3f} at proven epsilon "
            f"{last['epsilon']:.2f} after {last['epoch']} epochs (paper: {accuracy} at "
            f"{published})"
        )
    common.write(
        arguments,
        "abadi_figure3",
        rows,
        axes.figure,
        f"""Abadi et al., Figure 3, on {data.name}. {"; ".join(reports)}. Epsilon here
        includes the private PCA and uses today's conversion from RDP.""",
    )


if __name__ == "__main__":
    main()
