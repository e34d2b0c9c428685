"""A threshold test on scores: chosen on one half, measured on the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dp_ext.audit import confidence as stats

# Thresholds that are tried; they cost no confidence, being chosen on other data.
_THRESHOLDS = 2000


@dataclasses.dataclass(frozen=True)
class Threshold:
    """The outcome of one test, "the example was there if the score is greater".

    Attributes:
        epsilon: Lower bound.
        method: "clopper-pearson" assumes nothing; "gaussian-dp" that the
            trade-off between the two errors is that of Gaussian noise.
        threshold: The score above which the test says "present".
        true_positive_rate: A lower bound.
        false_positive_rate: An upper bound.
        mu: Lower bound on mu, for "gaussian-dp".
    """

    epsilon: float
    method: str
    threshold: float
    true_positive_rate: float
    false_positive_rate: float
    mu: float | None = None


def best_threshold(
    absent: np.ndarray,
    present: np.ndarray,
    delta: float,
    error: float,
    methods: Sequence[str] = ("clopper-pearson",),
) -> Threshold:
    """The best test on the even-numbered scores, measured on the odd ones.

    Scores that are not numbers count as extremely large: a release of NaN tells
    the adversary as much as any other.

    Args:
        absent: Scores of independent runs without the example.
        present: Scores of independent runs with it.
        delta: Delta at which epsilon is bounded.
        error: Probability with which the bound may fail.
        methods: Those that apply.

    Returns:
        The bound. It fails with probability at most `error` whatever the scores.
    """
    absent, present = (np.nan_to_num(s, nan=np.inf) for s in (absent, present))
    training = [np.sort(scores[::2]) for scores in (absent, present)]
    testing = [scores[1::2] for scores in (absent, present)]
    # Quantiles of both, down to single scores in either tail.
    tail = np.geomspace(1.0, min(map(len, training)) / 2, _THRESHOLDS // 4)
    ranks = np.unique(tail.astype(int)) - 1
    thresholds = np.unique(
        np.concatenate([s[index] for s in training for index in (ranks, -1 - ranks)])
    )
    # From both sides, so that of equal scores all or none are above.
    thresholds = np.concatenate([thresholds, np.nextafter(thresholds, -np.inf)])
    above = [len(s) - np.searchsorted(s, thresholds, side="right") for s in training]
    candidates = {
        method: _bounds(above, [len(s) for s in training], delta, error, method)[0]
        for method in methods
    }
    method = max(candidates, key=lambda name: np.max(candidates[name]))
    threshold = float(thresholds[np.argmax(candidates[method])])

    above = [np.atleast_1d(np.sum(scores > threshold)) for scores in testing]
    epsilon, tpr, fpr, mu = _bounds(
        above, [len(s) for s in testing], delta, error, method
    )
    return Threshold(
        epsilon=float(epsilon[0]),
        method=method,
        threshold=threshold,
        true_positive_rate=float(tpr[0]),
        false_positive_rate=float(fpr[0]),
        mu=float(mu[0]) if method == "gaussian-dp" else None,
    )


def _bounds(above: Any, trials: Any, delta: float, error: float, method: str) -> Any:
    """Epsilon and what it follows from, for every count of scores above."""
    # Half of the error for each of the two rates.
    _, fpr = stats.clopper_pearson(above[0], trials[0], error / 2)
    tpr, _ = stats.clopper_pearson(above[1], trials[1], error / 2)
    if method == "clopper-pearson":
        return stats.epsilon_from_rates(tpr, fpr, delta), tpr, fpr, np.zeros_like(tpr)
    mu = stats.gaussian_mu(tpr, fpr)
    # Epsilon grows with mu: only the greatest is worth solving for.
    epsilon = np.full_like(mu, -np.inf)
    best = np.argmax(mu)
    epsilon[best] = stats.gaussian_epsilon(mu[best], delta)
    return epsilon, tpr, fpr, mu
