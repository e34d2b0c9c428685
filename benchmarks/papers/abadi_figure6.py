"""Figure 6 of Abadi et al.: CIFAR-10 on public features, at three epsilons.

    python -m benchmarks.papers.abadi_figure6 [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N] [--epochs N] [--only EPSILON ...] [--tune]
        [--plan] [--finished-only]

The paper pre-trains its convolutions on CIFAR-100. Here scattering coefficients, which
need no data at all, take their place; a linear layer is trained on them. Noise 6 and
clip 3 are the paper's; lots of 2000 up to epsilon 2, and of 4000 up to 4 and 8: the
training up to 4 is the first part of that up to 8.
"""

from __future__ import annotations

import keras_dp_ext as dp
from benchmarks.papers import common, tuning
from keras_dp_ext.accounting import GaussianRelease, Poisson, epsilon
from keras_dp_ext.accounting.calibration import calibrate_releases
from keras_dp_ext.presets import build_model, with_features

NOISE, CLIP = 6.0, 3.0
# By target epsilon: sampling rate (lots of 50,000 images), the paper's accuracy.
TARGETS = {
    "2": (2_000 / 50_000, 0.67),
    "4": (4_000 / 50_000, 0.70),
    "8": (4_000 / 50_000, 0.73),
}


def affordable_epochs(target: float, rate: float) -> int:
    """Passes over the data that stay within epsilon."""
    release, sampling = GaussianRelease(NOISE), Poisson(rate)
    releases = calibrate_releases(
        lambda count: epsilon([(release, sampling, count)], common.DELTA), target
    )
    return int(releases * rate)


MOMENTUM, LEARNING_RATE = 0.9, 0.1
TRIED = (0.05, 0.1, 0.2)
TABLE = "abadi_cifar10"


def optimizer(learning_rate: float):
    return dp.optimizers.DPSGD(
        learning_rate=learning_rate,
        momentum=MOMENTUM,
        l2_norm_clip=CLIP,
        noise_multiplier=NOISE,
    )


def case(data, target: str, epochs: int, learning_rate: float) -> common.Case:
    return common.Case(
        labels={"budget": f"up to ε = {target}"},
        build=lambda data: build_model("scatter_linear", data),
        optimizer=lambda: optimizer(learning_rate),
        batch_size=round(TARGETS[target][0] * len(data.x_train)),
        epochs=epochs,
        settings={
            "method": "DP-SGD",
            "model": "scatter_linear",
            "learning_rate": learning_rate,
            "momentum": MOMENTUM,
            "noise": NOISE,
            "clip": CLIP,
        },
    )


def main() -> None:
    arguments = common.parse_arguments(
        __doc__,
        "abadi_figure6",
        only=list(TARGETS),
        extra={"--tune": common.TUNE},
    )
    raw = common.load("cifar10", arguments)
    data = raw
    if not arguments.plan and not arguments.finished_only:
        print("Computing scattering features", flush=True)
        data = with_features("scatter_linear", raw)
    if arguments.tune:
        # At the longer training's lots.
        tuning.tune(
            arguments,
            TABLE,
            data,
            {"DP-SGD": TRIED},
            lambda _, rate: case(tuning.hold_out(data), "8", 1, rate),
        )
        return
    rates = {"DP-SGD": LEARNING_RATE, **tuning.tuned_rates(arguments, TABLE)}
    cases, affordable = [], 0
    # The longest first: it contains the training up to 4.
    for target in sorted(arguments.only, key=int, reverse=True):
        # All that the target allows: the paper stops there, too.
        epochs = affordable_epochs(float(target), TARGETS[target][0])
        affordable = max(affordable, epochs)
        cases.append(
            case(
                data,
                target,
                common.limited(arguments, epochs, fast=min(epochs, 15 * int(target))),
                rates["DP-SGD"],
            )
        )
    rows = common.run_cases(arguments, "abadi_figure6", data, cases)
    rows.sort(key=lambda row: row["budget"])
    if common.nothing_to_draw(arguments, rows):
        return
    (axes,) = common.new_axes()
    common.draw_curves(axes, rows, "budget")
    looks = common.styles([one.labels["budget"] for one in reversed(cases)])
    for one in cases if not arguments.fast else ():
        # The paper's epochs are not told: its accuracy stands at the end of the budget.
        budget = one.labels["budget"]
        target = budget.rpartition(" ")[2]
        if any(row["budget"] == budget for row in rows):
            common.mark(
                *(axes, one.epochs, TARGETS[target][1], f"paper at ε = {target}"),
                offset=(-82, -3),
                colour=looks[budget]["color"],
            )
    common.log_axis(axes, [1, 3, 10, 30, 100, 300, 1000])
    common.finish(
        axes,
        f"Abadi et al., Figure 6 ({common.title_of(raw, 'cifar10')}, scattering)",
        "epoch",
        size=common.size_tag(raw, "cifar10", cases, rows, affordable),
        loc="upper left",
    )
    reports = [
        f"{common.told(last)} at proven epsilon {last['epsilon']:.2f} after "
        f"{last['epoch']} epochs (paper: {accuracy:.0%} at {target})"
        for last in common.last_epochs(rows, ["budget"])
        for target, (_, accuracy) in TARGETS.items()
        if last["budget"] == f"up to ε = {target}"
    ]
    common.write(
        arguments,
        "abadi_figure6",
        common.mean_curves(rows, ["budget"]),
        axes.figure,
        f"""Abadi et al., Figure 6: {"; ".join(reports)}. The paper trains a network
        behind convolutions that know CIFAR-100; here a linear layer on scattering
        features, which are fixed and have seen no data: the figures compare two public
        priors as much as two budgets. Epsilon is proven by today's conversion, which
        allows more epochs at the same noise. {
            tuning.rates_note(arguments, TABLE, rates)
        } {common.size_note(raw, "cifar10", cases, rows, affordable)}""",
    )


if __name__ == "__main__":
    main()
