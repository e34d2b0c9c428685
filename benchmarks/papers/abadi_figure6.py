"""Figure 6 of Abadi et al.: CIFAR-10 on public features, at three epsilons.

    python -m benchmarks.papers.abadi_figure6 [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N]

The paper pre-trains its convolutions on CIFAR-100. Here scattering coefficients, which
need no data at all, take their place; a linear layer is trained on them. Noise 6 and
clip 3 are the paper's; lots of 2000 up to epsilon 2, and of 4000 up to 4 and 8.
"""

from __future__ import annotations

import keras_dp_ext as dp
from benchmarks.papers import common
from keras_dp_ext.accounting import GaussianRelease, Poisson, epsilon
from keras_dp_ext.accounting.calibration import calibrate_releases
from keras_dp_ext.presets import build_model, with_features

NOISE, CLIP = 6.0, 3.0
# (epsilon, lot size, the paper's accuracy)
TARGETS = ((2.0, 2000, 0.67), (4.0, 4000, 0.70), (8.0, 4000, 0.73))


def affordable_epochs(target: float, rate: float) -> int:
    """Passes over the data that stay within epsilon."""
    release, sampling = GaussianRelease(NOISE), Poisson(rate)
    releases = calibrate_releases(
        lambda count: epsilon([(release, sampling, count)], common.DELTA), target
    )
    return int(releases * rate)


def main() -> None:
    arguments = common.parse_arguments(__doc__, "abadi_figure6")
    raw = common.load("cifar10", arguments)
    data = with_features("scatter_linear", raw)
    examples = len(data.x_train)
    rows = []
    for target, lot, _ in TARGETS:
        # The paper's rates are of 50,000 images.
        rate = lot / 50_000
        epochs = min(affordable_epochs(target, rate), 20 if arguments.fast else 200)
        for seed in range(arguments.seeds):
            curve = common.train(
                data,
                lambda data: build_model("scatter_linear", data),
                lambda: dp.optimizers.DPSGD(
                    learning_rate=0.1,
                    momentum=0.9,
                    l2_norm_clip=CLIP,
                    noise_multiplier=NOISE,
                ),
                batch_size=round(rate * examples),
                epochs=epochs,
                seed=seed,
            )
            label = f"epsilon {target:g}"
            rows += [{"budget": label, "seed": seed, **point} for point in curve]
    (axes,) = common.new_axes()
    curves = common.mean_curves(rows, "budget")
    common.draw_curves(axes, curves, "epoch", f"Abadi et al., Figure 6 ({data.name})")
    reports = []
    for target, _, accuracy in TARGETS:
        label = f"epsilon {target:g}"
        last = [row for row in rows if row["budget"] == label][-1]
        reports.append(
            f"{curves[label][1][-1]:.3f} at proven epsilon {last['epsilon']:.2f} "
            f"(paper: {accuracy} at {target:g})"
        )
    common.write(
        arguments,
        "abadi_figure6",
        rows,
        axes.figure,
        f"""Abadi et al., Figure 6, on {examples} examples of {data.name}
        ({raw.note}). {"; ".join(reports)}. The paper's convolutions were trained on
        CIFAR-100; the scattering features here are fixed and use no data.""",
    )


if __name__ == "__main__":
    main()
