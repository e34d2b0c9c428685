"""Group privacy: what epsilon means for somebody with several examples in the data."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy import optimize

from keras_dp_ext._checks import check_in
from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.accountants import Entry
from keras_dp_ext.accounting.conversion import epsilon_from_rdp
from keras_dp_ext.accounting.rdp import rdp_per_release
from keras_dp_ext.accounting.sampling import BallsInBins, Poisson, WithReplacement

RULES = ("best", "renyi", "chain")

# Integer orders of one example; an order of a group is one of them over its size.
_LARGEST_ORDER = 512
# How much smaller than delta the delta of one example may be, as a logarithm.
_SMALLER = np.concatenate([[0.0], np.geomspace(0.1, 650.0, 60)])


def group_epsilon(
    entries: Iterable[Entry], delta: float, group_size: int, rule: str = "best"
) -> float:
    """Epsilon of data sets that differ in a group of examples.

    Two rules hold for every mechanism, and "best" is the smaller figure:

    - "renyi": k applications of the triangle inequality of Renyi divergences (Bun and
      Steinke, 2016, Proposition 27; Mironov, 2017, Proposition 11) give

          rdp_k(a) <= sum_{i < k} k a / (k a - i) rdp_1(k a - i),

      which for a Gaussian without sampling is its RDP at k times the sensitivity.
    - "chain": (epsilon, delta) for one example is (k epsilon, delta (1 + e^epsilon + ...
      + e^((k - 1) epsilon))) for k, at most k e^((k - 1) epsilon) delta (Dwork and
      Roth, 2014, Theorem 2.2, with its delta). The delta of one example is chosen such
      that the group's is `delta`.

    Sampling with a delta of its own (lots of a fixed capacity, `Poisson.overflow_delta`;
    `WithReplacement`) goes by the chain alone. It is infinite for groups so large that
    this delta, multiplied as above, exceeds the target.

    Args:
        entries: Triples of event, sampling and number of releases.
        delta: Target delta, for the group.
        group_size: The number of examples of one person, say.
        rule: "best", "renyi" or "chain".

    Returns:
        Epsilon, possibly infinite.

    Raises:
        ValueError: If an argument is out of range.

    Example: somebody with one, and with four of 60,000 examples.

    >>> from keras_dp_ext.accounting import GaussianRelease, Poisson
    >>> training = [(GaussianRelease(1.1), Poisson(256 / 60_000), 60 * 234)]
    >>> [round(group_epsilon(training, 1e-5, size), 1) for size in (1, 4)]
    [2.6, 13.3]
    """
    check_in("delta", delta, "[0, 1]")
    if group_size < 1 or group_size != int(group_size):
        raise ValueError(
            "Argument `group_size` must be a positive integer. "
            f"Received: group_size={group_size}"
        )
    if rule not in RULES:
        raise ValueError(f"Argument `rule` must be one of {RULES}. Received: {rule}")
    entries = list(entries)
    figures = []
    if group_size == 1:
        return accountants.epsilon_rdp(entries, delta)
    if rule != "chain":
        figures.append(_renyi(entries, delta, int(group_size)))
    if rule != "renyi":
        figures.append(_chain(entries, delta, int(group_size)))
    return min(figures)


def _renyi(entries: list[Entry], delta: float, size: int) -> float:
    entries = accountants.spelled_out(entries)
    if any(_has_delta_of_its_own(sampling) for _, sampling, _ in entries):
        # Its RDP holds only outside of an event of small probability.
        return math.inf
    orders = np.arange(2.0, max(_LARGEST_ORDER, 2 * size) + 1)
    single = np.zeros(orders.shape)
    for event, sampling, count in entries:
        compositions = sampling.participations(count)
        if compositions:
            single += compositions * rdp_per_release(event, sampling, orders)
    # Sums of rdp(order) / order over `size` neighbouring orders.
    windows = np.lib.stride_tricks.sliding_window_view(single / orders, size)
    largest = orders[size - 1 :]
    group = largest * windows.sum(axis=1)
    usable = largest > size
    return epsilon_from_rdp(largest[usable] / size, group[usable], delta)[0]


def _chain(entries: list[Entry], delta: float, size: int) -> float:
    if delta in (0, 1):
        return size * accountants.epsilon_rdp(entries, delta)

    def single(smaller: float) -> float:
        return accountants.epsilon_rdp(entries, delta * math.exp(-smaller))

    def excess(smaller: float) -> float:
        """The logarithm of the group's delta over `delta`; at most 0 is enough."""
        epsilon = single(smaller)
        if math.isinf(epsilon):
            return math.inf
        return float(np.logaddexp.reduce(epsilon * np.arange(size))) - smaller

    before = 0.0
    for smaller in _SMALLER:
        if excess(smaller) <= 0:
            break
        before = smaller
    else:
        return math.inf
    # The least that is enough; whatever the search finds is checked, and rounded up.
    if smaller > before and math.isfinite(excess(before)):
        found = optimize.brentq(excess, before, smaller, xtol=1e-6) + 1e-5
        if found < smaller and excess(found) <= 0:
            smaller = found
    return size * single(smaller)


def _has_delta_of_its_own(sampling: object) -> bool:
    return isinstance(sampling, WithReplacement) or (
        isinstance(sampling, (Poisson, BallsInBins)) and sampling.overflow_delta > 0
    )
