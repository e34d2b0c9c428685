"""Figure 3 of Abadi et al.: accuracy over epochs at three noise levels, with PCA.

    python -m benchmarks.papers.abadi_figure3 [--fast] [--data-dir DIR]
        [--output-dir DIR] [--seeds N] [--epochs N] [--only LEVEL ...] [--tune]
        [--plan] [--finished-only]

60 private principal components, 1000 hidden units, clip 4, lots of 600 (q = 0.01). As in
the paper, examples have norm 1 where the components are computed, and are projected as
they are, with pixels between 0 and 1. Each panel shows the accuracy on test and training
images, and delta at the paper's epsilon. The accuracy on training images is a statistic
of private data that epsilon does not cover: it is drawn because the paper draws it.
"""

from __future__ import annotations

import dp_accounting
import keras
from dp_accounting import rdp

import keras_dp_ext as dp
from benchmarks.papers import common, tuning

# Noise, noise of the PCA, epochs at which the paper stops, its epsilon and accuracy.
LEVELS = {
    "large": (8.0, 16.0, 20, 0.5, 0.90),
    "medium": (4.0, 7.0, 125, 2.0, 0.95),
    "small": (2.0, 4.0, 500, 8.0, 0.97),
}
RATE, CLIP = 0.01, 4.0
# The paper's learning rate at the beginning, and what it falls to in ten epochs.
FIRST_RATE, FALLS_TO, FALLS_FOR = 0.1, 0.52, 10
TRIED = (0.05, 0.1, 0.2)
TABLE = "abadi_mnist"
# Delta is far below it in the first epochs, and means nothing above.
DELTA_AXIS = (1e-12, 1e-2)


def network(components: int, hidden: int, pca_noise: float):
    """Makes the paper's network; its components are a release of their own."""

    def build(data):
        return keras.Sequential(
            [
                keras.Input(data.x_train.shape[1:]),
                dp.data.PrivatePCA(
                    components, noise_multiplier=pca_noise, unit_norm=False
                ),
                keras.layers.Rescaling(1 / data.scale),
                keras.layers.Dense(hidden, activation="relu"),
                keras.layers.Dense(data.num_classes),
            ]
        )

    return build


def optimizer(noise: float, first_rate: float):
    """DP-SGD; the learning rate falls to about half in ten epochs."""
    rate = keras.optimizers.schedules.PolynomialDecay(
        first_rate, round(FALLS_FOR / RATE), FALLS_TO * first_rate
    )
    return dp.optimizers.DPSGD(
        learning_rate=rate, l2_norm_clip=CLIP, noise_multiplier=noise
    )


def case(arguments, data, level: str, first_rate: float) -> common.Case:
    noise, pca_noise, paper_epochs, *_ = LEVELS[level]
    components, hidden = (20, 100) if arguments.fast else (60, 1000)
    return common.Case(
        labels={"noise": f"{level} noise"},
        build=network(components, hidden, pca_noise),
        optimizer=lambda: optimizer(noise, first_rate),
        adapt=lambda model, data: model.layers[0].adapt(data.x_train),
        batch_size=round(RATE * len(data.x_train)),
        epochs=common.limited(arguments, paper_epochs, fast=min(paper_epochs, 25)),
        settings={
            "method": f"{level} noise",
            "model": f"pca {components}, {hidden} units",
            "learning_rate": first_rate,
            "noise": noise,
            "pca_noise": pca_noise,
            "clip": CLIP,
        },
        training_accuracy=True,
    )


def delta_after(level: str, epoch: int) -> float:
    """Delta at the paper's epsilon, of the training and its PCA."""
    noise, pca_noise, _, epsilon, _ = LEVELS[level]
    accountant = rdp.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(pca_noise))
    update = dp_accounting.PoissonSampledDpEvent(
        RATE, dp_accounting.GaussianDpEvent(noise)
    )
    accountant.compose(update, round(epoch / RATE))
    return accountant.get_delta(epsilon)


def both_accuracies(rows: list[dict]) -> list[dict]:
    """Means over seeds on training and on test images."""
    return [
        row
        for images, column in (("training", "training_accuracy"), ("test", "accuracy"))
        for row in common.mean_curves(
            [{**row, "images": images, "accuracy": row[column]} for row in rows],
            ["noise", "images"],
        )
    ]


def draw(
    panel, level: str, rows: list[dict], title: str, size: str, is_mnist: bool
) -> None:
    """Accuracy on both sets, and delta on an axis of its own."""
    epsilon = LEVELS[level][3]
    for name, colour, line in (("training", "#D55E00", "--"), ("test", "#0072B2", "-")):
        means = [row for row in both_accuracies(rows) if row["images"] == name]
        epochs = [row["epoch"] for row in means]
        middle = [row["accuracy_mean"] for row in means]
        panel.plot(epochs, middle, color=colour, linestyle=line, label=name)
        common.draw_band(panel, means, colour)
    deltas = panel.twinx()
    deltas.plot(
        epochs, [delta_after(level, epoch) for epoch in epochs], color="#009E73"
    )
    deltas.set_yscale("log")
    deltas.set_ylim(*DELTA_AXIS)
    deltas.set_ylabel(f"δ at ε = {epsilon:g}", color="#009E73")
    deltas.spines[["top"]].set_visible(False)
    panel.set_ylim(max(0.0, min(middle) - 0.02), 1.0)
    if is_mnist:
        common.mark(panel, LEVELS[level][2], LEVELS[level][4], "paper", offset=(-34, 6))
    panel.xaxis.get_major_locator().set_params(integer=True)
    common.finish(panel, title, "epoch", "accuracy", size=size, loc="upper left")


def main() -> None:
    arguments = common.parse_arguments(
        __doc__,
        "abadi_figure3",
        only=list(LEVELS),
        extra={"--tune": common.TUNE},
    )
    data = common.load("mnist", arguments)
    levels = {f"{level} noise": level for level in arguments.only}
    if arguments.tune:
        tuning.tune(
            arguments,
            TABLE,
            data,
            dict.fromkeys(levels, TRIED),
            lambda name, rate: case(
                arguments, tuning.hold_out(data), levels[name], rate
            ),
        )
        return
    tuned = tuning.tuned_rates(arguments, TABLE)
    rates = {name: tuned.get(name, FIRST_RATE) for name in levels}
    cases = {
        level: case(arguments, data, level, rates[name])
        for name, level in levels.items()
    }
    rows = common.run_cases(arguments, "abadi_figure3", data, list(cases.values()))
    if common.nothing_to_draw(arguments, rows):
        return
    summary = {row["noise"]: row for row in common.last_epochs(rows, ["noise"])}
    trained = [name for name in levels if name in summary]
    panels = common.new_axes(len(trained), width=5.4)
    name = common.title_of(data, "mnist")
    reports = []
    for panel, noise in zip(panels, trained, strict=True):
        level, last = levels[noise], summary[noise]
        own = [row for row in rows if row["noise"] == noise]
        title = f"Abadi et al., Figure 3 ({name}): {noise}"
        tag = common.size_tag(data, "mnist", [cases[level]], own, LEVELS[level][2])
        draw(panel, level, own, title, tag, is_mnist=not arguments.fast)
        *_, paper_epochs, published, accuracy = LEVELS[level]
        ends = [r["training_accuracy"] for r in own if r["epoch"] == last["epoch"]]
        reports.append(
            f"{noise} {common.told(last)} on test images and "
            f"{sum(ends) / len(ends):.1%} on training images, at proven epsilon "
            f"{last['epsilon']:.2f} after {last['epoch']} epochs (paper: {accuracy:.0%} "
            f"at {published} after {paper_epochs})"
        )
    common.write(
        arguments,
        "abadi_figure3",
        both_accuracies(rows),
        panels[0].figure,
        f"""Abadi et al., Figure 3: {
            "; ".join(reports)
        }. Proven epsilon covers the private
        PCA as well, and today's conversion from RDP makes it smaller than the paper's
        figure for the same noise; the green curve is delta at the paper's epsilon. The
        accuracy on training images is drawn as in the paper, and no epsilon covers it.
        Examples are projected as they are, with pixels between 0 and 1. {
            tuning.rates_note(arguments, TABLE, rates)
        } The paper begins at {FIRST_RATE}; rates fall to {FALLS_TO} of that in
        {FALLS_FOR} epochs, as there. {
            common.size_note(
                data,
                "mnist",
                list(cases.values()),
                rows,
                max(LEVELS[levels[noise]][2] for noise in trained),
            )
        }""",
    )


if __name__ == "__main__":
    main()
