"""The figures of docs/errata.md, one for each paper; Equation 13 has its own script.

    python -m benchmarks.papers.errata [--fast] [--output-dir DIR]
        [--only nasr sampling amian xiang]

Seconds in either mode, without TensorFlow. Each panel shows what is printed against
what holds; the derivations are in docs/errata.md.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.special import comb

from benchmarks.papers import common
from keras_dp_ext import noise
from keras_dp_ext.accounting import (
    GaussianRelease,
    Poisson,
    WithReplacement,
    epsilon,
    rdp_per_release,
)
from keras_dp_ext.accounting.composition import amplified
from keras_dp_ext.analysis import published_budget

PRINTED, HOLDS = "#D55E00", "#0072B2"
NOISES = ("gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech")
MNIST, BATCH, STEPS_PER_EPOCH = 60_000, 256, 234


class Panel:
    """One pair of axes; what is drawn on it goes into the CSV as well."""

    def __init__(self, axes, name: str, rows: list[dict]):
        self.axes, self._name, self._rows = axes, name, rows

    def plot(self, series: str, x, y, *style, **keywords) -> None:
        """Draws a curve, and keeps its points."""
        self.axes.plot(x, y, *style, label=series, linewidth=1.8, **keywords)
        self._rows += [
            {"panel": self._name, "series": series, "x": float(a), "y": float(b)}
            for a, b in zip(x, y, strict=True)
        ]


def panels(*names: str, width: float = 5.0) -> tuple[list[Panel], list[dict]]:
    """A figure with these panels, and the rows of its CSV."""
    rows: list[dict] = []
    axes = common.new_axes(len(names), width=width)
    return [Panel(a, n, rows) for a, n in zip(axes, names, strict=True)], rows


# Nasr, Shokri, Houmansadr ---------------------------------------------------


def lemma_4(orders: np.ndarray, rate: float, sigma: float) -> np.ndarray:
    """The sum of Lemma 4 for Gaussian noise and a shift of 1, in logarithms."""
    sums = []
    for order in orders:
        k = np.arange(order + 1)
        moments = np.exp(k * (k - 1) / (2 * sigma**2))
        weights = comb(order, k) * rate**k * (1 - rate) ** (order - k)
        sums.append(np.log(np.sum(weights * moments)))
    return np.array(sums)


def similarities(size: int, vectors: int) -> tuple[float, float]:
    """Greatest and least similarity of a Laplace gradient to a Gaussian codebook."""
    rng = np.random.default_rng(size)
    gradient = np.sort(np.abs(rng.laplace(size=size)))
    gradient /= np.linalg.norm(gradient)
    cosines = []
    for _ in range(vectors):
        vector = np.sort(np.abs(rng.normal(size=size)))
        cosines.append(vector @ gradient / np.linalg.norm(vector))
    return max(cosines), min(cosines)


def log_moments(density: noise.Noise, shifts: np.ndarray) -> np.ndarray:
    """log M_3(tau): the third moment of the ratio of shifted to unshifted density."""
    x = np.linspace(-400, 400, 400_001)
    unshifted = density.log_density(x)
    values = [
        np.sum(np.exp(3 * density.log_density(x - shift) - 2 * unshifted))
        for shift in shifts
    ]
    return np.log(np.array(values) * (x[1] - x[0]))


def make_nasr(arguments: argparse.Namespace) -> None:
    (left, middle, right), rows = panels("lemma 4", "algorithm 2", "lemma 5")
    rate, sigma, orders = 0.01, 1.1, np.arange(2, 17)
    logarithms = lemma_4(orders, rate, sigma)
    known = rdp_per_release(GaussianRelease(sigma), Poisson(rate), orders.tolist())
    printed, corrected = logarithms / (1 - orders), logarithms / (orders - 1)
    left.plot("as printed, 1/(1 - α)", orders, printed, "--", color=PRINTED)
    left.plot("corrected, 1/(α - 1)", orders, corrected, color=HOLDS)
    left.plot("dp_accounting", orders, known, "o", color="#333333", markersize=4)
    left.axes.axhline(0, color="#333333", linewidth=0.8)
    common.finish(left.axes, "Lemma 4: the sign", "order α", "RDP of one release")

    sizes = (10, 100, 1_000) if arguments.fast else (10, 30, 100, 300, 1_000, 26_010)
    vectors = 100 if arguments.fast else 1_000
    best, worst = zip(*(similarities(size, vectors) for size in sizes), strict=True)
    middle.plot("arg max", sizes, best, "o-", color=HOLDS, markersize=4)
    middle.plot("arg min, as printed", sizes, worst, "o--", color=PRINTED, markersize=4)
    middle.axes.set_xscale("log")
    common.finish(
        middle.axes,
        f"Algorithm 2: which of {vectors:,} vectors",
        "parameters",
        "cosine similarity to the gradient",
    )

    shifts = np.linspace(0, 2, 5 if arguments.fast else 21)
    for name, style in common.styles(NOISES).items():
        line = {**style, "marker": None}
        right.plot(name, shifts, log_moments(noise.get(name), shifts), **line)
    common.finish(
        right.axes,
        "Lemma 5: why boxes cost no more than their corners",
        "shift τ of one coordinate",
        "log M₃(τ)",
    )
    common.write(
        arguments,
        "errata_nasr",
        rows,
        left.axes.figure,
        f"""Nasr et al. Left: with the sign of Lemma 4 as printed a release has a negative
        cost; with the corrected one the lemma agrees with dp_accounting (largest
        difference {np.max(np.abs(corrected / known - 1)):.0e}). Middle: Algorithm 2
        prints the arg min of the similarity. With few parameters it would keep less of
        the gradient ({best[0]:.2f} against {worst[0]:.2f} at {sizes[0]}); at
        {sizes[-1]:,} all vectors have nearly the same sorted magnitudes
        ({best[-1]:.4f} against {worst[-1]:.4f}). Privacy does not depend on the choice.
        Right: encoded gradients lie in boxes, not at their corners; the moments of all
        six noises grow with the shift, so that a corner costs most and the bound
        holds. Nothing here depends on chance but the draw of the codebooks.""",
    )


def make_sampling(arguments: argparse.Namespace) -> None:
    (panel,), rows = panels("sampling", width=5.6)
    epochs = np.array([1, 5, 20, 60] if arguments.fast else [1, 2, 5, 10, 20, 30, 60])
    release, ends = GaussianRelease(1.1), {}
    for label, sampling, style, colour in (
        ("with replacement", WithReplacement(BATCH, MNIST), "o-", HOLDS),
        ("Poisson: what is analysed", Poisson(BATCH / MNIST), "o--", PRINTED),
    ):
        values = [
            epsilon([(release, sampling, STEPS_PER_EPOCH * int(e))], common.DELTA)
            for e in epochs
        ]
        panel.plot(label, epochs, values, style, color=colour, markersize=4)
        ends[label] = values[-1]
    common.finish(
        panel.axes,
        "Nasr et al., Section 5: σ = 1.1, batches of 256 of 60,000",
        "epoch",
        "proven ε",
    )
    replaced, poisson = ends.values()
    common.write(
        arguments,
        "errata_sampling",
        rows,
        panel.axes.figure,
        f"""Nasr et al., Section 5. The paper draws batches with replacement and accounts
        for them by Lemma 4, which is about Poisson sampling: {poisson:.2f} after 60
        epochs at sigma = 1.1. What is proven here for batches that are really drawn
        with replacement is {replaced:.2f}: an example may be in a batch twice, and high
        orders see it. With `poisson_batches` the paper's figure holds. Nothing here
        depends on chance.""",
    )


# Amian ------------------------------------------------------------------------


def make_amian(arguments: argparse.Namespace) -> None:
    (left, right), rows = panels("sensitivity", "equation 4", width=5.4)
    parameters = np.unique(
        np.geomspace(1, 26_010, 6 if arguments.fast else 16).round().astype(int)
    )
    sampling, steps = Poisson(BATCH / MNIST), 60 * STEPS_PER_EPOCH
    values = [
        epsilon([(GaussianRelease(1.1 / math.sqrt(n)), sampling, steps)], common.DELTA)
        for n in parameters.tolist()
    ]
    proven = values[-1]
    # The paper's Section II.B has the classic conversion.
    published = epsilon(
        [(GaussianRelease(1.1), sampling, steps)], common.DELTA, conversion="classic"
    )
    left.plot(
        "published: sensitivity 1",
        parameters,
        [published] * len(parameters),
        "--",
        color=PRINTED,
    )
    left.plot("proven: sensitivity √n", parameters, values, "o-", color=HOLDS)
    left.axes.set_xscale("log")
    left.axes.set_yscale("log")
    common.finish(left.axes, "σ = 1.1, c = 1, 60 epochs of MNIST", "parameters n", "ε")
    x = np.linspace(-5, 5, 101)
    right.plot("tanh(x)", x, np.tanh(x), color=HOLDS)
    right.plot(
        "printed: (1 - exp(-x)) / (1 + exp(-x))",
        x,
        (1 - np.exp(-x)) / (1 + np.exp(-x)),
        "--",
        color=PRINTED,
    )
    right.plot("tanh(x / 2)", x[::5], np.tanh(x[::5] / 2), ".", color="#333333")
    common.finish(right.axes, "Equation 4", "x", "f(x)", loc="upper left")
    common.write(
        arguments,
        "errata_amian",
        rows,
        left.axes.figure,
        f"""Amian. Left: the filter bounds each coordinate by c = 1, so that one example of
        n parameters can have an L2 norm of sqrt(n), as the paper says; its epsilon,
        {published:.2f}, takes 1. What is proven grows to {proven:.1e} at
        {parameters[-1]:,} parameters, which is no guarantee. Right: Equation 4 as
        printed is tanh(x / 2). Nothing here depends on chance.""",
    )


# Xiang et al. -----------------------------------------------------------------

ROWS, COORDINATES, KEPT = 255, 4_000, 0.1


def clipped(vectors: np.ndarray) -> np.ndarray:
    """Vectors of a norm of at most 1, the unit of length here."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(1.0, norms)


def moved(pull: np.ndarray) -> np.ndarray:
    """How far one example moves the clipped average of n + 1 examples.

    The others' average is (1, 0); the example pulls the other way, with `pull` times
    the length of the others' sum. In units of alpha, for large n.
    """
    without = np.array([1.0, 0.0])
    averages = np.stack([1.0 - pull, np.zeros_like(pull)], axis=1)
    return np.linalg.norm(clipped(averages) - without, axis=1)


def kept(lengths: np.ndarray, draws: int) -> tuple[list[float], float]:
    """How often a coordinate is among the greatest, with and without an example.

    The example lies along that coordinate with these lengths; the others are clipped
    rows without direction, so that every coordinate takes its turn.
    """
    rng = np.random.default_rng(0)
    count = round(KEPT * COORDINATES)
    shares, plain = np.zeros(len(lengths)), 0.0
    for _ in range(draws):
        total = clipped(rng.normal(size=[ROWS, COORDINATES])).sum(axis=0)
        magnitudes = np.abs(total)
        ordered = np.sort(magnitudes)[::-1]
        # The least of the greatest `count` among all the other coordinates.
        inside = magnitudes >= ordered[count - 1]
        least = np.where(inside, ordered[count], ordered[count - 1])
        plain += np.mean(magnitudes > least) / draws
        shares += np.mean(np.abs(total + lengths[:, None]) > least, axis=1) / draws
    return shares.tolist(), float(plain)


def make_xiang(arguments: argparse.Namespace) -> None:
    (left, middle, right), rows = panels("amplification", "direction", "pruning")
    rate = 512 / 55_000
    # What the gradients get of the budget, over the rate: Section 4.3.
    budget = published_budget(1.0, common.DELTA, 55_000, lot_size=512, epochs=60)
    before = budget.gradient_epsilon / rate
    levels = np.geomspace(0.1, 1.2 * before, 40)
    holds = [amplified(level, rate, "proven") for level in levels]
    left.plot("log(1 + q (exp(ε) - 1))", levels, holds, color=HOLDS)
    left.plot(
        "as printed: q ε",
        levels,
        [amplified(level, rate) for level in levels],
        "--",
        color=PRINTED,
    )
    left.axes.axvline(before, color="#333333", linewidth=0.8, linestyle=":")
    left.axes.set_xscale("log")
    left.axes.set_yscale("log")
    common.finish(
        left.axes,
        f"Section 4.3: a sample of rate {rate:.4f}",
        "ε on the sample",
        "ε on the data set",
    )

    pull = np.geomspace(0.01, 10, 60)
    distance = moved(pull)
    middle.plot("clip of the average moves by", pull, distance, color=HOLDS)
    middle.plot("as accounted: α", pull, np.ones_like(pull), "--", color=PRINTED)
    middle.axes.set_xscale("log")
    common.finish(
        middle.axes,
        "Algorithm 1: the sensitivity of w",
        "one gradient over the sum of all others",
        "distance / α",
        loc="upper left",
    )

    lengths = np.linspace(0, 1, 5 if arguments.fast else 21)
    shares, plain = kept(lengths, draws=4 if arguments.fast else 40)
    right.plot("with the example, as printed", lengths, shares, "--", color=PRINTED)
    right.plot("without it", lengths, [plain] * len(lengths), "o", color="#333333")
    right.plot(
        "mask from noised gradients: either way",
        lengths,
        [KEPT] * len(lengths),
        color=HOLDS,
    )
    right.axes.set_ylim(0, 1.25)
    common.finish(
        right.axes,
        "Pruning: is a coordinate kept?",
        "length of the example along it / α",
        "probability",
        loc="upper left",
    )
    common.write(
        arguments,
        "errata_xiang",
        rows,
        left.axes.figure,
        f"""Xiang et al. Left: Section 4.3 takes the amplification by sampling as
        q epsilon. The budget of {budget.gradient_epsilon:g} becomes {before:.0f} before sampling,
        where the theorem gives {amplified(before, rate, "proven"):.0f} in place of
        {amplified(before, rate):.3g}. Middle: the average is clipped after it is taken,
        so that one example moves it by up to {distance.max():.2f} alpha; alpha is
        accounted. Right: the support of a pruned gradient, before any noise. An example
        along one coordinate makes that coordinate stay with a probability of
        {shares[-1]:.2f} where it would be {plain:.2f} ({ROWS} other examples,
        {COORDINATES:,} coordinates, a tenth kept): a coordinate that is missing
        tells that the example is missing, whatever noise comes after. Chosen from past
        noised gradients, the mask says nothing about it.""",
    )


PARTS = {
    "nasr": make_nasr,
    "sampling": make_sampling,
    "amian": make_amian,
    "xiang": make_xiang,
}


def main() -> None:
    arguments = common.parse_arguments(__doc__, "errata", data=False, only=list(PARTS))
    for part in arguments.only:
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
