"""Figures 3 to 6 of Xiang et al.: directional noise over epochs, epsilon, lots, clips.

    python -m benchmarks.papers.xiang_figures [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N] [--epochs N] [--only 3a 3c 4a ...]
        [--methods METHOD ...] [--width N] [--tune] [--plan] [--finished-only]

a: MNIST with LeNet; b: SVHN with AlexNet, if it is in the data directory; c: CIFAR-10
with ResNet-18; the settings are those of Table 1. Proven mechanisms get the noise that
their proven epsilon asks for. Algorithm 1 as printed gets the noise of its published
budget, and its proven epsilon is that of the least noise of every step. Its w would take a
pass over all data for each update, and is drowned in its own noise: by default only that
noise is drawn (`noise_direction.py` proves how little this changes), and "as printed, full
batch" does what is printed. With pruning, on SVHN and CIFAR-10, the printed algorithm has
no guarantee at all and is not run; `--width` makes the two large networks narrower than
the paper's 64 channels. `--tune` chooses the learning rate of each method at the settings
of Table 1; where the clip varies, rate times clip is constant.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

import keras

import keras_dp_ext as dp
from benchmarks import models
from benchmarks.papers import common, noise_direction, tuning
from keras_dp_ext.accounting.calibration import calibrate_noise

# Learning rate times clip where there is no table of learning rates.
STEP_LENGTH = 0.2


@dataclasses.dataclass(frozen=True)
class Setting:
    """What one training is, but for the method: Table 1, and what a figure changes."""

    data: str
    model: str
    lot: int
    clip: float
    epochs: int
    pruning: float | None
    epsilon: float


@dataclasses.dataclass(frozen=True)
class Figure:
    """A part of a figure: which setting it changes, to which values."""

    setting: Setting
    varies: str | None = None
    values: tuple[float, ...] = ()
    fast_values: tuple[float, ...] = ()
    says: str = ""


MNIST = Setting("mnist", "lenet", 512, 0.1, 60, None, 1.0)
SVHN = Setting("svhn_cropped", "alexnet", 256, 2.0, 30, 0.9, 10.0)
CIFAR = Setting("cifar10", "resnet18", 256, 2.0, 100, 0.9, 5.0)
#: Training examples of Table 1, where it does not take all.
EXAMPLES = {"mnist": 55_000}

_LOTS = (
    "lot",
    (128, 256, 512, 1024),
    (64, 256),
    "that accuracy falls with the lot size",
)
FIGURES = {
    "3a": Figure(MNIST, says="that its method is ahead of w = 1, Gaussian and AdaClip"),
    "3b": Figure(SVHN, says="that w = 1 is ahead of its method and the Gaussian"),
    "3c": Figure(CIFAR, says="that w = 1 is ahead of its method and the Gaussian"),
    "4a": Figure(
        MNIST,
        *("epsilon", (0.2, 0.5, 1.0, 2.0), (0.5, 1.0)),
        "that its method is up to 9 points above the Gaussian, at epsilon 0.2",
    ),
    "4b": Figure(
        SVHN,
        *("epsilon", (2.5, 5.0, 10.0, 15.0), (5.0, 10.0)),
        "that w = 1 reaches 92.47% at epsilon 5, the Gaussian less than 40%",
    ),
    "4c": Figure(
        CIFAR,
        *("epsilon", (5.0, 10.0, 15.0), (5.0, 10.0)),
        "that its methods gain most at low privacy, such as epsilon 15",
    ),
    "5a": Figure(MNIST, *_LOTS),
    "5b": Figure(SVHN, *_LOTS),
    "5c": Figure(CIFAR, *_LOTS),
    "5d": Figure(
        CIFAR,
        *("pruning", (0.5, 0.8, 0.9, 0.95, 0.99), (0.5, 0.9)),
        "that its method fails above a ratio of 0.9, and others hardly change",
    ),
    "6a": Figure(
        dataclasses.replace(MNIST, epsilon=0.3),
        *("clip", (0.01, 0.03, 0.1, 0.3, 1.0), (0.03, 0.3)),
        "that accuracy is level between clips of 0.01 and 0.1, and falls above",
    ),
    "6b": Figure(
        SVHN,
        *("clip", (0.5, 1.0, 2.0, 4.0, 6.0), (0.5, 2.0)),
        "that its methods do not mind the clip, and the Gaussian falls above 2",
    ),
}
NAMES = {
    "epsilon": "ε: proven, or published for the methods as printed",
    "lot": "lot size",
    "pruning": "pruning ratio",
    "clip": "clip",
}

# Methods ------------------------------------------------------------------

NOISE_FOR_W = "as printed, noise for w"
FULL_BATCH = "as printed, full batch"
# Share of the budget that Algorithm 1 spends on w, by method.
SPLITS = {
    NOISE_FOR_W: 1 / 8,
    f"{NOISE_FOR_W} (1/4)": 1 / 4,
    f"{NOISE_FOR_W} (1/3)": 1 / 3,
    "as printed, w = 1": 0.0,
    FULL_BATCH: 1 / 8,
}
# Directions of the proven mechanisms; DP-SGD has none.
DIRECTIONS = {
    "DP-SGD": None,
    "directional": "gradient",
    "directional, w = 1": "uniform",
    "AdaClip's scales": "adaclip",
}
ADACLIP, GAMMA = "AdaClip", 0.01
METHODS = ("unperturbed", *DIRECTIONS, ADACLIP, *SPLITS)
# What `--tune` tries first.
TRIED = {
    **dict.fromkeys([*DIRECTIONS, *SPLITS], (1.0, 2.0, 4.0)),
    "unperturbed": (0.1, 0.2, 0.4),
    ADACLIP: (0.25, 0.5, 1.0),
}


def steps_of(setting: Setting, examples: int) -> int:
    return setting.epochs * max(1, round(examples / setting.lot))


def calibrated(setting: Setting, examples: int) -> float:
    """The noise that the setting's proven epsilon asks for."""
    return calibrate_noise(
        dp.accounting.GaussianRelease,
        dp.accounting.Poisson(setting.lot / examples),
        steps_of(setting, examples),
        setting.epsilon,
        common.DELTA,
    )


def published(method: str, setting: Setting, examples: int):
    """What Algorithm 1 spends."""
    return dp.analysis.PublishedBudget(
        setting.epsilon,
        common.DELTA,
        setting.lot / examples,
        steps_of(setting, examples),
        SPLITS[method],
    )


def optimizer(method: str, setting: Setting, examples: int, rate: float):
    """The method's optimizer at a setting."""
    if method == "unperturbed":
        return keras.optimizers.SGD(rate)
    if method == ADACLIP:
        noise = calibrated(setting, examples)
        return dp.optimizers.AdaClipSGD(
            learning_rate=rate, noise_multiplier=noise, gamma=GAMMA
        )
    arguments = {"learning_rate": rate, "l2_norm_clip": setting.clip}
    if method in SPLITS:
        budget = published(method, setting, examples)
        return dp.optimizers.DirectionalSGD(
            **arguments,
            direction="gradient" if budget.split else "uniform",
            guarantee="published",
            published_budget=budget,
        )
    arguments["noise_multiplier"] = calibrated(setting, examples)
    direction = DIRECTIONS[method]
    if direction is None and setting.pruning is None:
        return dp.optimizers.DPSGD(**arguments)
    # All scales equal to 1: isotropic noise, on what pruning leaves.
    isotropic = {"direction": "uniform", "max_ratio": 1.0}
    return dp.optimizers.DirectionalSGD(
        **(isotropic if direction is None else {"direction": direction}),
        pruning_ratio=setting.pruning,
        **arguments,
    )


def callbacks_of(method: str) -> Callable | None:
    """Where Algorithm 1 gets its w from."""
    if method == FULL_BATCH:
        return lambda data: [
            dp.callbacks.FullBatchDirection(data.x_train, data.y_train.astype("int32"))
        ]
    if SPLITS.get(method):
        return lambda data: [noise_direction.NoiseDirection()]
    return None


def rate_of(tuned: dict[str, float], method: str, figure: Figure, clip: float) -> float:
    """Rates are tuned at Table 1's clip; an update of a clipped row stays as long."""
    if method in ("unperturbed", ADACLIP):
        return tuned.get(method, TRIED[method][0])
    at_the_tables_clip = tuned.get(method, STEP_LENGTH / figure.setting.clip)
    return at_the_tables_clip * figure.setting.clip / clip


def methods_of(figure: Figure, chosen: list[str]) -> list[str]:
    """What the part shows: AdaClip and the printed forms on MNIST only."""
    methods = [method for method in METHODS if method in chosen]
    if figure.setting.pruning is not None:
        methods = [m for m in methods if "AdaClip" not in m and m not in SPLITS]
    if figure.varies != "epsilon":
        # Other splits of the budget are Figure 4's subject.
        methods = [m for m in methods if not m.endswith(")")]
    if figure.varies is not None:
        methods = [m for m in methods if m != "unperturbed"]
    return methods


def case_of(
    arguments, figure: Figure, method: str, setting: Setting, examples: int, rate: float
) -> common.Case:
    own = {} if setting.model == "lenet" else {"width": arguments.width}
    settings = {"method": method, "model": setting.model, "learning_rate": rate, **own}
    if method != "unperturbed":
        settings |= {
            # AdaClip has none: its bound is 1 after its transformation.
            **({} if method == ADACLIP else {"clip": setting.clip}),
            "target_epsilon": setting.epsilon,
            # The noise is made for so many.
            "planned_epochs": setting.epochs,
            "pruning": setting.pruning,
        }
    return common.Case(
        labels=labels_of(figure, method, setting),
        build=lambda data: build(setting, data, arguments.width),
        optimizer=lambda: optimizer(method, setting, examples, rate),
        callbacks=callbacks_of(method),
        batch_size=min(setting.lot, examples),
        epochs=setting.epochs,
        settings=settings,
    )


# Figures ------------------------------------------------------------------


def make_part(arguments: argparse.Namespace, part: str, data) -> None:
    figure = FIGURES[part]
    epochs = common.limited(arguments, figure.setting.epochs, fast=8)
    setting = dataclasses.replace(figure.setting, epochs=epochs)
    if arguments.fast:
        setting = dataclasses.replace(setting, lot=128)
    values = figure.fast_values if arguments.fast else figure.values
    settings = [
        dataclasses.replace(setting, **{figure.varies: value}) for value in values
    ] or [setting]
    examples = len(data.x_train)
    tuned = tuning.tuned_rates(arguments, f"xiang_{setting.data}")
    methods = methods_of(figure, arguments.methods)
    rates = {m: rate_of(tuned, m, figure, figure.setting.clip) for m in methods}
    cases = [
        case_of(
            *(arguments, figure, method, one, examples),
            rate_of(tuned, method, figure, one.clip),
        )
        for one in settings
        for method in methods
    ]
    rows = common.run_cases(arguments, f"xiang_{setting.data}", data, cases)
    if common.nothing_to_draw(arguments, rows):
        return
    keys = list(cases[0].labels)
    summary = common.last_epochs(rows, keys)
    name = common.title_of(data, setting.data)
    title = f"Xiang et al., Figure {part} ({name})"
    tag = common.size_tag(
        *(data, setting.data, cases, rows, figure.setting.epochs),
        EXAMPLES.get(setting.data),
    )
    if figure.varies is None:
        drawing = draw_epochs(rows, title, tag)
    else:
        (axes,) = common.new_axes(width=6.2)
        # Methods as printed stand at their published epsilon.
        x = column(figure)
        common.draw_points(axes, summary, "method", x)
        if figure.varies != "pruning":
            common.log_axis(axes, sorted({row[x] for row in summary}))
        common.finish(axes, title, NAMES[figure.varies], size=tag)
        drawing = axes.figure
    paper_lot = figure.setting.lot
    other = []
    if figure.varies != "lot" and setting.lot != paper_lot:
        other.append(f"lots of {setting.lot} instead of {paper_lot}")
    if data.name != "digits" and setting.model != "lenet" and arguments.width < 64:
        other.append(f"{setting.model} of width {arguments.width} instead of 64")
    size = common.size_note(
        *(data, setting.data, cases, rows, figure.setting.epochs),
        EXAMPLES.get(setting.data),
        other,
    )
    note = tuning.rates_note(arguments, f"xiang_{setting.data}", rates)
    common.write(
        arguments,
        f"xiang_figure{part}",
        summary if figure.varies else common.mean_curves(rows, keys),
        drawing,
        f"""Xiang et al., Figure {part}, {name}. The paper says {figure.says}. Here, at
        the last epoch: {_reports(figure, summary)}. {_reasons(figure, summary)}
        {_bound(settings, summary, examples)} {note} {size}""",
    )


def draw_epochs(rows: list[dict], title: str, size: str):
    """Accuracy over epochs, and private methods over DP-SGD at the same seed."""
    private = [row for row in rows if row["method"] != "unperturbed"]
    paired = any(row["method"] == "DP-SGD" for row in rows) and any(
        row["method"] != "DP-SGD" for row in private
    )
    left, *right = common.new_axes(2 if paired else 1, width=6.2)
    common.draw_curves(left, rows, "method")
    common.finish(left, title, "epoch", size=size)
    for axes in right:
        common.draw_differences(axes, private, "method", "DP-SGD")
        what = "points above DP-SGD of the same seed"
        common.finish(axes, "The same over DP-SGD", "epoch", what, size=size)
    return left.figure


def labels_of(figure: Figure, method: str, setting: Setting) -> dict:
    """The columns that name a run; `epsilon` is what is proven, not the target."""
    labels = {"method": method, "target_epsilon": setting.epsilon}
    if figure.varies in (None, "epsilon"):
        return labels
    return {**labels, figure.varies: getattr(setting, figure.varies)}


def column(figure: Figure) -> str:
    """The column of what varies."""
    return "target_epsilon" if figure.varies == "epsilon" else figure.varies


def build(setting: Setting, data, width: int):
    """LeNet, or one of the large networks at the width that was asked for."""
    wide = {} if setting.model == "lenet" else {"width": width}
    return models.build(setting.model, data, **wide)


def _reports(figure: Figure, summary: list[dict]) -> str:
    """Accuracy of every method, by the value that varies."""
    reports = []
    for method in dict.fromkeys(row["method"] for row in summary):
        own = [row for row in summary if row["method"] == method]
        figures = ", ".join(
            common.told(row)
            + ("" if figure.varies is None else f" at {row[column(figure)]:g}")
            for row in own
        )
        reports.append(f"{method} {figures}")
    return "; ".join(reports)


def _reasons(figure: Figure, summary: list[dict]) -> str:
    """What the proven epsilons are, and why figures differ from the paper's."""
    printed = [row for row in summary if "as printed" in row["method"]]
    proven = [
        row for row in summary if row not in printed and row["method"] != "unperturbed"
    ]
    highest = common.short(max((row["epsilon"] for row in proven), default=0.0))
    text = f"Proven epsilon is at most {highest}"
    for method in dict.fromkeys(row["method"] for row in printed):
        own = [row for row in printed if row["method"] == method]
        pairs = ", ".join(
            f"{common.short(row['epsilon'])} (published: "
            f"{common.short(row['published_epsilon'])})"
            for row in own
        )
        text += f"; {method}, it is {pairs}"
    text += "."
    reason = (
        " Why they differ: under an L2 bound isotropic noise is already optimal "
        "(docs/errata.md, Equation 13), so that a gain as printed is paid with privacy "
        "where w is small; proven directional noise changes the bound instead, and "
        "gains where coordinates differ in scale (xiang_ill_conditioned). The paper "
        "reports the best epoch (here best_mean, if a setting varies), and does not "
        "tell its learning rates."
    )
    if figure.setting.pruning is not None:
        reason += (
            " The mask and the memory of the pruning come from noised values here; as "
            "printed they depend on private data. DP-SGD is pruned in the same way, and "
            "no part of the budget is spent on w."
        )
    return text + reason


def _bound(settings: list[Setting], summary: list[dict], examples: int) -> str:
    """What it changes that Algorithm 1's w is its noise alone."""
    drawn = {row["method"] for row in summary} & set(SPLITS)
    drawn = {method for method in drawn if SPLITS[method] and method != FULL_BATCH}
    if not drawn:
        return ""
    budgets = [published(method, one, examples) for method in drawn for one in settings]
    worst = max(map(noise_direction.total_variation_bound, budgets))
    least = min(budget.direction_multiplier for budget in budgets)
    return (
        f"Algorithm 1 as printed: w is a full-batch gradient of norm at most alpha under "
        f"noise of at least {least:,.0f} alpha in each coordinate, and here only that "
        f"noise is drawn. Given the past, two such directions are Gaussians of which one "
        f"is shifted by at most alpha, so that by the chain rule the Kullback-Leibler "
        f"divergence of the whole trainings, of T steps, is at most T / (2 m^2) for a "
        f"noise of m alpha; by Pinsker's inequality no event's probability changes by "
        f"more than sqrt(T) / (2 m), here {worst:.3f} for one training "
        f"(benchmarks/papers/noise_direction.py)."
    )


def tune(arguments, part: str, data) -> None:
    """Learning rates of all methods at the settings of Table 1."""
    figure = FIGURES[part]
    setting = figure.setting
    examples = len(tuning.hold_out(data).x_train)
    methods = methods_of(figure, arguments.methods)
    tuning.tune(
        arguments,
        f"xiang_{setting.data}",
        data,
        {method: TRIED[method] for method in methods},
        lambda method, rate: case_of(
            arguments, figure, method, setting, examples, rate
        ),
    )


def main() -> None:
    arguments = common.parse_arguments(
        __doc__,
        "xiang_figures",
        only=list(FIGURES),
        methods=list(METHODS),
        extra={"--width": {"type": int, "default": 64}, "--tune": common.TUNE},
        left_out=[FULL_BATCH],
    )
    loaded = {}
    for part in arguments.only:
        name = FIGURES[part].setting.data
        if name not in loaded or loaded[name] is None:
            loaded[name] = common.load_or_skip(
                name, f"Figure {part}", arguments, examples=EXAMPLES.get(name)
            )
        if loaded[name] is None:
            continue
        if not arguments.tune:
            make_part(arguments, part, loaded[name])
        elif part.startswith("3"):  # The settings of Table 1.
            tune(arguments, part, loaded[name])


if __name__ == "__main__":
    main()
