"""The least distortion at a given rate, by reverse water-filling."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class DistortionRate:
    """A point of the lower bound `D*(R)`.

    Attributes:
        distortion: `D*(R)`, the sum of the coordinates' distortions.
        water_level: The common distortion of every coordinate that is sent.
        per_coordinate: The distortion `D_i` of each coordinate.
    """

    distortion: float
    water_level: float
    per_coordinate: np.ndarray


def gaussian_entropy(standard_deviation: npt.ArrayLike) -> np.ndarray:
    """Differential entropy, in nats, of normal variables."""
    return 0.5 * np.log(2 * np.pi * np.e) + np.log(standard_deviation)


def distortion_rate_bound(
    rate: float, weights: npt.ArrayLike, entropies: npt.ArrayLike
) -> DistortionRate:
    """No release of at most `rate` nats distorts a random vector less than this.

    The distortion is `E sum_i w_i**2 (released_i - g_i)**2` for independent
    coordinates `g_i` of differential entropy `h_i`. It is Shannon's lower bound:
    exact for normal coordinates. With `rate=mutual_information_bound(epsilon)`
    it bounds the distortion of every pure epsilon-DP release.

    Args:
        rate: Mutual information that the release may have, in nats.
        weights: `w_i`, how much an error of coordinate `i` matters.
        entropies: `h_i`, differential entropy of coordinate `i` in nats.

    Returns:
        The bound, its water level and the distortion of each coordinate.

    Raises:
        ValueError: If `rate` is negative or the arrays do not match.

    Example: two normal coordinates of variance 4 and 1. A rate of `log(2)`
    brings the first down to the second, and leaves the second unsent.

    >>> bound = distortion_rate_bound(
    ...     math.log(2), weights=[1, 1], entropies=gaussian_entropy([2, 1])
    ... )
    >>> round(bound.distortion, 6)
    2.0

    References:
        Xiang et al. (2021), Theorem 3 and Eq. 15; Cover and Thomas, "Elements
        of Information Theory", section 10.3.3.
    """
    if not rate >= 0:
        raise ValueError(f"Argument `rate` must be at least 0. Received: rate={rate}")
    log_power = _log_power(weights, entropies)
    log_level = _log_water_level(rate, log_power)
    per_coordinate = np.exp(np.minimum(log_power, log_level))  # Eq. 15b.
    return DistortionRate(
        distortion=float(per_coordinate.sum()),
        water_level=math.exp(log_level),
        per_coordinate=per_coordinate,
    )


def rate_distortion_bound(
    distortion: float, weights: npt.ArrayLike, entropies: npt.ArrayLike
) -> float:
    """No release with at most this distortion tells fewer nats than this: `R*(D)`.

    The inverse of `distortion_rate_bound`, whose arguments it shares.

    Args:
        distortion: `D`, the sum of the coordinates' distortions.
        weights: `w_i`.
        entropies: `h_i`, in nats.

    Returns:
        The rate in nats; 0 where nothing needs to be told, infinite for no distortion.

    Raises:
        ValueError: If `distortion` is negative or the arrays do not match.

    Example:

    >>> rate = rate_distortion_bound(2.0, [1, 1], gaussian_entropy([2, 1]))
    >>> round(math.exp(rate), 6)
    2.0

    References:
        Xiang et al. (2021), Lemma 4 and Eq. 16.
    """
    if not distortion >= 0:
        raise ValueError(
            "Argument `distortion` must be at least 0. "
            f"Received: distortion={distortion}"
        )
    log_power = _log_power(weights, entropies)
    power = np.sort(np.exp(log_power[np.isfinite(log_power)]))
    if distortion >= power.sum() * (1 - 1e-12):  # The sum is rounded.
        return 0.0
    if distortion == 0:
        return math.inf
    # With the m weakest coordinates unsent, the others share what is left (Eq. 16c).
    unsent = np.concatenate([[0.0], np.cumsum(power)])[:-1]
    levels = (distortion - unsent) / np.arange(power.size, 0, -1)
    level = levels[np.flatnonzero(levels < power)[0]]
    return float(0.5 * np.sum(np.log(np.maximum(power / level, 1.0))))


def _log_power(weights: npt.ArrayLike, entropies: npt.ArrayLike) -> np.ndarray:
    """Eq. 15a: log beta_i, the distortion of a coordinate of which nothing is said."""
    weights = np.atleast_1d(np.asarray(weights, np.float64))
    entropies = np.atleast_1d(np.asarray(entropies, np.float64))
    if weights.shape != entropies.shape or weights.ndim != 1:
        raise ValueError(
            "Arguments `weights` and `entropies` must be vectors of the same "
            f"length. Received shapes: {weights.shape} and {entropies.shape}"
        )
    with np.errstate(divide="ignore"):  # A weight of 0 has log_power -inf: unsent.
        return (
            2 * np.log(np.abs(weights)) + 2 * entropies - math.log(2 * math.pi * math.e)
        )


def _log_water_level(rate: float, log_power: np.ndarray) -> float:
    """Solves `sum_i max(0, log_power_i - level) / 2 = rate` (Eq. 15c) exactly.

    With the m strongest coordinates above water the level is
    `(sum of their log_power - 2 rate) / m`; the right m is the last for which
    the m-th coordinate is still above the level that it implies.
    """
    descending = np.sort(log_power[np.isfinite(log_power)])[::-1]
    if descending.size == 0 or math.isinf(rate):
        return -math.inf
    count = np.arange(1, descending.size + 1)
    levels = (np.cumsum(descending) - 2 * rate) / count
    sent = np.flatnonzero(descending >= levels)
    return float(levels[sent[-1]])
