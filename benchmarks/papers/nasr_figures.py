"""Figures 2 to 5 and 7 of Nasr et al.: encoding and denoising against DP-SGD.

    python -m benchmarks.papers.nasr_figures [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N] [--epochs N] [--only mnist cifar10]
        [--methods METHOD ...] [--model NAME] [--tune] [--plan] [--finished-only]

MNIST for 60 and CIFAR-10 for 100 epochs, in lots of 256, with the paper's noise: Gaussian
0.8 to 1.4, Student-t 0.9 to 1.5. Figure 3, the best of all settings, has lots of 128 and
512 as well. The paper does not say which networks it trains: here the one of TF-Privacy's
tutorial, with tanh (26,010 and 37,274 parameters); `--model cifar_cnn` is a larger one.
Lots are Poisson sampled, which the paper's analysis is about (it samples with
replacement, see docs/errata.md). All methods have clip (norm of the codebook) 1. Each
method has the learning rate that does best on held out training images (`--tune` makes
that table): denoised updates are multiplied by a distance well below 1, and need a far
larger one. Figures 4, 5 and 7 are evaluated every 50 steps. Figures 1 and 6 have scripts
of their own.
"""

from __future__ import annotations

import argparse

import numpy as np

import keras_dp_ext as dp
from benchmarks import models
from benchmarks.papers import common, tuning

LOT, OTHER_LOTS = 256, (128, 512)
EVALUATE_EVERY = 50
EPOCHS = {"mnist": 60, "cifar10": 100}
# What the text reads off Figures 2 and 3: (epsilon, accuracy).
PAPER = {"mnist": ((2.5, 0.96), (3.2, 0.961)), "cifar10": ((3.6, 0.555), (3.0, 0.55))}
# The epsilon at which DP-SGD is said to reach the same accuracy.
DP_SGD = {"mnist": (5, 6), "cifar10": (5, 4.2)}

GAUSSIAN_DENOISED = "encoding, Gaussian, denoised"
UNDENOISED = "encoding, Student-t"
DENOISED = "encoding, Student-t, denoised"
METHODS = {
    "DP-SGD": lambda noise, rate: dp.optimizers.DPSGD(
        learning_rate=rate, l2_norm_clip=1.0, noise_multiplier=noise
    ),
    GAUSSIAN_DENOISED: lambda noise, rate: dp.optimizers.EncodedSGD(
        learning_rate=rate, noise=dp.noise.Gaussian(noise), denoise="ks"
    ),
    DENOISED: lambda noise, rate: dp.optimizers.EncodedSGD(
        learning_rate=rate, noise=dp.noise.StudentT(df=9, scale=noise), denoise="ks"
    ),
    UNDENOISED: lambda noise, rate: dp.optimizers.EncodedSGD(
        learning_rate=rate, noise=dp.noise.StudentT(df=9, scale=noise), denoise=None
    ),
}
# The pair of Figure 4: of nearly equal cost, see docs/errata.md.
PAIR = {"DP-SGD": 1.1, GAUSSIAN_DENOISED: 1.1, DENOISED: 1.0, UNDENOISED: 1.0}
# The paper's range for Figure 2. Figure 5 alone shows encoding without denoising.
GAUSSIANS, STUDENTS = (0.8, 1.1, 1.4), (0.9, 1.0, 1.5)
NOISES = {
    "DP-SGD": GAUSSIANS,
    GAUSSIAN_DENOISED: GAUSSIANS,
    DENOISED: STUDENTS,
    UNDENOISED: (1.0,),
}
# Where there is no table; the digits of fast mode want less.
LEARNING_RATES = {
    "DP-SGD": 1.0,
    GAUSSIAN_DENOISED: 160.0,
    DENOISED: 160.0,
    UNDENOISED: 1.0,
}
FAST_LEARNING_RATES = {
    "DP-SGD": 0.25,
    GAUSSIAN_DENOISED: 2.0,
    DENOISED: 2.0,
    UNDENOISED: 0.25,
}
# What `--tune` tries first.
TRIED = {
    "DP-SGD": (0.25, 0.5, 1.0),
    GAUSSIAN_DENOISED: (40.0, 80.0, 160.0),
    DENOISED: (40.0, 80.0, 160.0),
    UNDENOISED: (0.25, 0.5, 1.0),
}


def table_of(paper: str) -> str:
    """The name of the learning rates' table."""
    return f"nasr_{paper}"


def rates_of(arguments: argparse.Namespace, paper: str) -> dict[str, float]:
    """The learning rate of each method."""
    usual = FAST_LEARNING_RATES if arguments.fast else LEARNING_RATES
    tuned = tuning.tuned_rates(arguments, table_of(paper))
    return {method: tuned.get(method, usual[method]) for method in arguments.methods}


def case(
    arguments: argparse.Namespace,
    method: str,
    noise: float,
    lot: int,
    rate: float,
    epochs: int,
) -> common.Case:
    of_the_pair = noise == PAIR[method] and lot == LOT
    return common.Case(
        labels={"method": method, "noise": noise, "lot": lot},
        build=lambda data: models.build(arguments.model, data),
        optimizer=lambda: METHODS[method](noise, rate),
        batch_size=lot // 2 if arguments.fast else lot,
        epochs=epochs,
        settings={
            "method": method,
            "model": arguments.model,
            "noise": noise,
            "learning_rate": rate,
        },
        evaluate_every=EVALUATE_EVERY if of_the_pair and not arguments.fast else None,
    )


def cases_of(arguments, rates: dict[str, float], epochs: int) -> list[common.Case]:
    """The pair of Figures 4, 5 and 7 first; then Figure 2's noise, Figure 3's lots."""
    settings = [(method, PAIR[method], LOT) for method in arguments.methods]
    for method in arguments.methods:
        settings += [
            (method, noise, LOT) for noise in NOISES[method] if noise != PAIR[method]
        ]
    if not arguments.fast:
        settings += [
            (method, PAIR[method], lot)
            for lot in OTHER_LOTS
            for method in arguments.methods
            if method != UNDENOISED
        ]
    return [
        case(arguments, method, noise, lot, rates[method], epochs)
        for method, noise, lot in settings
    ]


def best_within(rows: list[dict]) -> tuple[list[float], np.ndarray]:
    """The best mean over seeds of any noise, lot and number of epochs, by epsilon.

    Choosing it by its accuracy is not private; neither is it in the paper.
    """
    means = common.mean_curves(rows, ["noise", "lot"])
    means.sort(key=lambda row: row["epsilon"])
    best = np.maximum.accumulate([row["accuracy_mean"] for row in means])
    return [row["epsilon"] for row in means], best


def figures_2_and_3(
    arguments, data, paper: str, rows: list[dict], size: str, tag: str
) -> None:
    """Accuracy against proven epsilon, for a constant number of epochs and the best."""
    rows = [row for row in rows if row["method"] != UNDENOISED and row["epoch"]]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    if not rows:
        return
    left, right = common.new_axes(2)
    summary = common.last_epochs(rows, ["method", "noise", "lot"])
    constant = [row for row in summary if row["lot"] == LOT]
    common.draw_points(left, constant, "method", "epsilon")
    for method, style in common.styles(list(METHODS)).items():
        if method not in methods:
            continue
        own = [row for row in rows if row["method"] == method]
        line = {**style, "marker": None}
        right.step(*best_within(own), where="post", label=method, **line)
    name = common.title_of(data, paper)
    for axes, figure, point in zip((left, right), (2, 3), PAPER[paper], strict=True):
        if not arguments.fast:
            common.mark(axes, *point, "paper: encoding")
            claimed = DP_SGD[paper][figure - 2], point[1]
            common.mark(axes, *claimed, "paper: DP-SGD", colour="#333333")
        how = "constant epochs" if figure == 2 else "best of all"
        title = f"Nasr et al., Figure {figure}: {how} ({name})"
        common.finish(axes, title, "proven ε", size=tag, loc="lower right")
    by_method = "; ".join(
        f"{method} "
        + ", ".join(
            f"{common.told(row)} at {row['epsilon']:.2f} (noise {row['noise']:g})"
            for row in constant
            if row["method"] == method
        )
        for method in methods
    )
    (epsilon_2, accuracy_2), (epsilon_3, accuracy_3) = PAPER[paper]
    common.write(
        arguments,
        f"nasr_figures2_3_{paper}",
        summary,
        left.figure,
        f"""Nasr et al., Figures 2 and 3, {name}. The paper says {accuracy_2:.1%} at epsilon
        {epsilon_2} (DP-SGD: {DP_SGD[paper][0]}) for constant epochs, and
        {accuracy_3:.1%} at {epsilon_3} (DP-SGD: {DP_SGD[paper][1]}) at best. At proven
        epsilon (Poisson sampling, delta 1e-5), last epoch, lots of {LOT}:
        {by_method}. Figure 3 takes the best of all noises, epochs and lots
        ({", ".join(str(lot) for lot in sorted({row["lot"] for row in summary}))}).
        Why they differ from the paper: its network and its
        learning rates are not known, and its batches are drawn with replacement, which
        its bound does not cover; Student-t and Gaussian noise of equal Fisher
        information cost about the same (docs/errata.md). {size}""",
    )


def draw_4_5_7(rows: list[dict], name: str, tag: str):
    """Trajectories, and steps to reach an accuracy; returns the figure."""
    left, middle, right = common.new_axes(3, width=5)
    title = f"Nasr et al., Figure {{}} ({name})"
    parts = (
        (left, 4, [row for row in rows if row["method"] != UNDENOISED]),
        (middle, 5, [row for row in rows if row["method"].startswith(UNDENOISED)]),
    )
    for axes, figure, own in parts:
        common.draw_curves(axes, own, "method", "step", among=list(METHODS))
        if own:
            common.finish(
                axes, title.format(figure), "step", size=tag, loc="lower right"
            )
    curves = means_by_method(rows)
    highest = min(max(a for _, a in curve) for curve in curves.values())
    lowest = min(curve[0][1] for curve in curves.values())
    # All have passed less at the first evaluation.
    levels = np.linspace(lowest, highest, 8)
    for method, style in common.styles(list(METHODS)).items():
        if method not in curves:
            continue
        needed = [
            next(step for step, accuracy in curves[method] if accuracy >= level)
            for level in levels
        ]
        right.plot(levels, needed, markersize=5, label=method, **style)
    common.finish(right, title.format(7), "test accuracy", "steps needed", size=tag)
    return left.figure


def means_by_method(rows: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """Step and mean accuracy of every evaluation."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in common.mean_curves(rows, ["method"], "step"):
        curves.setdefault(row["method"], []).append((row["step"], row["accuracy_mean"]))
    return curves


def figures_4_5_7(
    arguments, data, paper: str, rows: list[dict], size: str, tag: str
) -> None:
    """Trajectories at the paper's pair of noises; steps to reach an accuracy."""
    rows = [
        row for row in rows if row["noise"] == PAIR[row["method"]] and row["lot"] == LOT
    ]
    if not rows:
        return
    name = common.title_of(data, paper)
    drawing, curves = draw_4_5_7(rows, name, tag), means_by_method(rows)
    prices = sorted(
        {f"{row['epsilon']:.2f}" for row in common.last_epochs(rows, ["method"])}
    )
    ends = "; ".join(
        f"{method} {curve[0][1]:.1%} after {curve[0][0]} steps, {common.told(last)} at "
        f"the end"
        for (method, curve), last in zip(
            curves.items(), common.last_epochs(rows, ["method"]), strict=True
        )
    )
    common.write(
        arguments,
        f"nasr_figures4_5_7_{paper}",
        common.mean_curves(rows, ["method"], "step"),
        drawing,
        f"""Nasr et al., Figures 4, 5 and 7, {name}: sigma 1.1 (Gaussian) and 1 (Student-t),
        whose proven epsilons are {" and ".join(prices)}. The paper says that
        encoding with denoising is ahead from the first steps, that denoising matters
        much, and that fewer steps are needed for any accuracy. Here: {ends}. Denoising
        multiplies each update by its distance from pure noise, well below 1: a schedule
        of learning rates that the data set by themselves. The paper has
        one learning rate for all methods; here each has its own. {size}""",
    )


def main() -> None:
    arguments = common.parse_arguments(
        __doc__,
        "nasr_figures",
        only=list(EPOCHS),
        methods=list(METHODS),
        extra={
            "--model": {"default": "tanh_cnn", "help": "of keras_dp_ext.presets"},
            "--tune": common.TUNE,
        },
    )
    for paper in arguments.only:
        data = common.load_or_skip(paper, f"Figures 2 to 7 ({paper})", arguments)
        if data is None:
            continue
        epochs = common.limited(arguments, EPOCHS[paper], fast=12)
        if arguments.tune:
            tuning.tune(
                arguments,
                table_of(paper),
                data,
                {method: TRIED[method] for method in arguments.methods},
                lambda method, rate, epochs=epochs: case(
                    arguments, method, PAIR[method], LOT, rate, epochs
                ),
            )
            continue
        rates = rates_of(arguments, paper)
        cases = cases_of(arguments, rates, epochs)
        rows = common.run_cases(arguments, f"nasr_{paper}", data, cases)
        if common.nothing_to_draw(arguments, rows):
            continue
        note = tuning.rates_note(arguments, table_of(paper), rates)
        size = common.size_note(data, paper, cases, rows, EPOCHS[paper])
        tag = common.size_tag(data, paper, cases, rows, EPOCHS[paper])
        figures_2_and_3(arguments, data, paper, rows, f"{note} {size}", tag)
        figures_4_5_7(arguments, data, paper, rows, f"{note} {size}", tag)


if __name__ == "__main__":
    main()
