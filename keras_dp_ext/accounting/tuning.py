"""What it costs to train several times and publish the best: private selection."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy import optimize

from keras_dp_ext._checks import check_in, check_not_negative
from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.accountants import Entry
from keras_dp_ext.accounting.conversion import epsilon_from_rdp
from keras_dp_ext.accounting.rdp import ORDER_TIERS, rdp_per_release
from keras_dp_ext.accounting.sampling import WithReplacement


def tuning_epsilon(
    entries: Iterable[Entry], delta: float, mean_runs: float, shape: float = 1.0
) -> float:
    """Epsilon of the best of a *random* number of trainings, and of its settings.

    A fixed number of runs costs as much as all of them together. If the number is
    random (`draw_runs`) and only the best model and its settings are published, the cost
    is about that of two or three runs, however many there are:

        rdp'(a) <= rdp(a) + (1 + shape) ((1 - 1/b) rdp(b) + log(1/gamma) / b)
                   + log(mean_runs) / (a - 1)        for every order b

    The score by which the best is chosen must be part of what a run releases: accuracy
    on public data, or on private data with noise that `entries` hold.

    Args:
        entries: Triples of event, sampling and number of releases of *one* run, the
            costliest of them all.
        delta: Target delta.
        mean_runs: Expected number of runs, at least 1.
        shape: Of the truncated negative binomial distribution of the number of runs:
            1 is geometric, 0 logarithmic. Less varies more and costs less.

    Returns:
        Epsilon, possibly infinite.

    Raises:
        ValueError: If an argument is out of range, or runs draw with replacement.

    Example:

    >>> from keras_dp_ext.accounting import GaussianRelease, Poisson
    >>> run = [(GaussianRelease(1.1), Poisson(256 / 60_000), 60 * 234)]
    >>> round(tuning_epsilon(run, 1e-5, mean_runs=20), 1)
    5.5

    References:
        Papernot, Steinke, "Hyperparameter Tuning with Renyi Differential Privacy"
        (2021), Theorem 2.
    """
    check_in("delta", delta, "[0, 1]")
    gamma = success_probability(mean_runs, shape)
    entries = accountants.spelled_out(entries)
    if any(isinstance(sampling, WithReplacement) for _, sampling, _ in entries):
        raise ValueError(
            "The cost of tuning is not known for sampling with replacement: use "
            "`poisson_batches`."
        )
    orders = np.array([order for tier in ORDER_TIERS for order in tier])
    rdp = np.zeros(orders.shape)
    for event, sampling, count in entries:
        compositions = sampling.participations(count)
        if compositions:
            rdp += compositions * rdp_per_release(event, sampling, tuple(orders))
    # A run is within this total variation distance of one with lots of any size, and
    # the best of K runs within K times that.
    overflow = accountants._overflow_delta(entries)
    selected = rdp_of_selection(orders, rdp, mean_runs, gamma, shape)
    left = max(delta - mean_runs * overflow, 0.0)
    return epsilon_from_rdp(orders, selected, left)[0]


def rdp_of_selection(
    orders: np.ndarray, rdp: np.ndarray, mean_runs: float, gamma: float, shape: float
) -> np.ndarray:
    """Theorem 2: from the RDP of one run to that of the best of a random number."""
    with np.errstate(invalid="ignore"):
        by_order = (1 - 1 / orders) * rdp - math.log(gamma) / orders
    constant = (1 + shape) * np.min(by_order)
    selected = rdp + constant + math.log(mean_runs) / (orders - 1)
    # RDP does not fall with the order: what holds above holds below.
    return np.minimum.accumulate(selected[::-1])[::-1]


def success_probability(mean_runs: float, shape: float) -> float:
    """`gamma` of the truncated negative binomial distribution with this mean."""
    check_not_negative("shape", shape)
    if not 1 <= mean_runs < math.inf:
        raise ValueError(
            "Argument `mean_runs` must be finite and at least 1. "
            f"Received: mean_runs={mean_runs}"
        )
    if mean_runs == 1:
        return 1.0

    def mean(log_gamma: float) -> float:
        # expm1, because gamma ** shape may be near 1.
        if shape == 0:
            return math.expm1(-log_gamma) / -log_gamma
        return shape * math.expm1(-log_gamma) / -math.expm1(shape * log_gamma)

    least = -1.0
    while mean(least) < mean_runs:
        least *= 2
    found = optimize.brentq(lambda x: mean(x) - mean_runs, least, -1e-12, xtol=1e-13)
    return math.exp(found)


def draw_runs(mean_runs: float, shape: float = 1.0, seed: int | None = None) -> int:
    """How often to train: draw it once, before the first run, and keep it secret.

    Args:
        mean_runs: As for `tuning_epsilon`.
        shape: As for `tuning_epsilon`.
        seed: For tests only: the number of runs must stay secret.

    Example:

    >>> draw_runs(mean_runs=20) >= 1
    True
    """
    gamma = success_probability(mean_runs, shape)
    if gamma == 1:
        return 1
    rng = np.random.default_rng(seed)
    if shape == 0:
        return int(rng.logseries(1 - gamma))
    while True:
        runs = int(rng.negative_binomial(shape, gamma))
        if runs:
            return runs
