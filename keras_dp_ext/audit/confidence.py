"""From counts of an attack's successes to an epsilon that they rule out."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy import special, stats

from keras_dp_ext._checks import check_in


def clopper_pearson(
    successes: npt.ArrayLike, trials: int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Exact one-sided bounds on a probability, element by element.

    Args:
        successes: How often the event happened.
        trials: Out of how many independent trials.
        error: The probability with which *each* of the two bounds may fail.

    Returns:
        Lower and upper bounds.

    Example:

    >>> low, high = clopper_pearson(0, 1000, error=0.05)
    >>> float(low), round(float(high), 5)  # The "rule of three": 3 / n.
    (0.0, 0.00299)
    """
    successes = np.asarray(successes, np.float64)
    failures = trials - successes
    with np.errstate(invalid="ignore"):
        low = stats.beta.ppf(error, successes, failures + 1)
        high = stats.beta.isf(error, successes + 1, failures)
    return np.where(successes == 0, 0.0, low), np.where(failures == 0, 1.0, high)


def confidence_of_each(joint: float, count: int) -> float:
    """The confidence that each of several bounds needs, for all to hold jointly.

    Bonferroni's inequality: errors add up at most, however the bounds depend on each
    other (audits with the same seed do).

    Args:
        joint: Probability with which all of them must hold.
        count: How many bounds there are.

    Example:

    >>> round(confidence_of_each(0.95, 10), 6)
    0.995
    """
    check_in("confidence", joint, "(0, 1)")
    return 1.0 - (1.0 - joint) / max(1, count)


def epsilon_from_rates(
    true_positive_rate: npt.ArrayLike, false_positive_rate: npt.ArrayLike, delta: float
) -> np.ndarray:
    """The least epsilon that allows a test with these rates.

    Differential privacy limits every test by `TPR <= e^eps FPR + delta`, and its
    complement by `TNR <= e^eps FNR + delta` (Kairouz et al., 2015).

    Example:

    >>> round(float(epsilon_from_rates(0.5, 0.05, delta=0.0)), 4)  # log(10)
    2.3026
    """
    tpr = np.asarray(true_positive_rate, np.float64)
    fpr = np.asarray(false_positive_rate, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.log(np.maximum(tpr - delta, 0.0)) - np.log(fpr)
        mirrored = np.log(np.maximum(1.0 - fpr - delta, 0.0)) - np.log(1.0 - tpr)
    return np.fmax(0.0, np.fmax(direct, mirrored))


def true_positive_bound(
    false_positive_rate: npt.ArrayLike, epsilon: float, delta: float
) -> np.ndarray:
    """The greatest TPR that (epsilon, delta) allows at each FPR.

    Example:

    >>> float(true_positive_bound(0.25, epsilon=0.0, delta=0.0))  # Only guessing.
    0.25
    """
    fpr = np.asarray(false_positive_rate, np.float64)
    direct = delta + np.exp(np.minimum(epsilon, 700.0)) * fpr
    mirrored = 1.0 - np.exp(-epsilon) * (1.0 - delta - fpr)
    return np.clip(np.minimum(direct, mirrored), 0.0, 1.0)


def gaussian_mu(
    true_positive_rate: npt.ArrayLike, false_positive_rate: npt.ArrayLike
) -> np.ndarray:
    """The least mu for which mu-Gaussian-DP allows a test with these rates.

    Example:

    >>> round(float(gaussian_mu(0.8413447, 0.5)), 4)
    1.0
    """
    with np.errstate(invalid="ignore"):
        mu = special.ndtri(true_positive_rate) - special.ndtri(false_positive_rate)
    return np.fmax(0.0, mu)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon of mu-Gaussian-DP at `delta`: exact, not by RDP.

    A Gaussian release with noise multiplier sigma is (1/sigma)-GDP, k of them
    sqrt(k)/sigma.

    Example:

    >>> round(gaussian_epsilon(1.0, delta=1e-5), 3)
    4.377
    """
    sigma = 1.0 / mu if mu else math.inf
    return float(dp_accounting.get_epsilon_gaussian(sigma, delta))
