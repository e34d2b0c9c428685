"""Moments of a whole shifted vector: products over coordinates, as sums of logs."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from keras_dp_ext.accounting.moments import MomentError, log_moments
from keras_dp_ext.noise import Noise

# With more distinct magnitudes than this, log M_k is interpolated.
_DIRECT = 32
# Chebyshev knots in log tau for each octave, and points where the fit is checked.
_KNOTS = np.cos(np.pi * (np.arange(6) + 0.5) / 6)[::-1]
_CHECKS = np.array([-0.97, -0.15, 0.5, 0.98])
# Shifts below this part of the noise's scale are rounded up to it: differences of
# log-densities lose their digits there.
_SMALLEST = 1e-8
# Where convexity in tau is checked, and what the check may miss.
_EVEN = np.linspace(0.0, 1.0, 33)
_CONVEXITY_SLACK = 1e-5


def log_vector_moments(
    noise: Noise,
    magnitudes: np.ndarray,
    counts: np.ndarray,
    powers: np.ndarray,
    rows: int = 1,
) -> np.ndarray:
    """Upper bounds on log E[L**k] over all shifts that the event allows.

    `L` is the likelihood ratio of the shifted noise vector, a product over
    independent coordinates, so that for a shift with magnitudes tau_i

        log E[L**k] = sum_i f_k(tau_i),    f_k = log M_k.

    *Domination.* For a symmetric unimodal density z, f_k does not decrease in
    |tau|, so that a vector that is dominated rank by rank by a profile has at most
    the profile's sum. More is true: every divergence between the shifted and the
    unshifted noise grows with the shift. For g >= 1 let S be the set where
    z(x - tau) > g z(x). It lies right of tau / 2, where z falls, so moving S by
    d > 0 keeps its probability under the noise shifted by tau + d and lowers it
    under z: the hockey-stick divergence at tau + d is at least that at tau. For
    g < 1 reflect at half the shift. Tensor products and sampling preserve this
    order. The computed f_k are passed through a running maximum all the same.

    The maximum over the profiles is taken for each k: a sum with nonnegative
    coefficients over k is then bounded for every profile.

    *Several rows.* One example may move several rows: two if it turns a row e into
    e' (microbatches), j if it is drawn j times with replacement (dropout and
    augmentation make its rows differ). The shift then has coordinates of at most
    a_i + b_i + ..., where a, b, ... are arrangements of r profiles in unknown
    orders. If f_k is convex on [0, r max],

        f_k(a_i + b_i + ...) <= (f_k(r a_i) + f_k(r b_i) + ...) / r,

    and summing over i removes the arrangements: the bound is the maximum over the
    profiles of the sum of f_k(r a). Otherwise, f_k being nondecreasing,

        f_k(a_i + b_i + ...) <= f_k(r max(a_i, b_i, ...)) <= f_k(r a_i) + ...,

    and the bound is r times that maximum. Convexity is checked numerically.

    Args:
        noise: Density of every coordinate.
        magnitudes: `[bins]`, ascending and positive: those a row may have.
        counts: `[profiles, bins]`, how often each profile has each of them.
        powers: Real powers k above 1.
        rows: How many rows one example may move.

    Returns:
        Array of `len(powers)`.

    Raises:
        MomentError: If a moment cannot be bounded.
    """
    powers = np.asarray(powers, np.float64)
    if np.size(magnitudes) == 0:
        return np.zeros(powers.shape)
    grid = np.maximum(
        rows * np.asarray(magnitudes, np.float64), _SMALLEST * noise.scale
    )
    if grid.size <= _DIRECT:
        values = log_moments(noise, grid, powers)
    else:
        clipped = np.maximum(grid, _relevant(grid, counts))
        values = _interpolate(noise, clipped, powers)
    sums = np.max(counts @ np.maximum.accumulate(values, axis=0), axis=0)
    if rows > 1:
        convex = _is_convex(noise, grid[-1], powers)
        sums *= np.where(convex, 1.0 + _CONVEXITY_SLACK, rows)
    return sums


def _relevant(grid: np.ndarray, counts: np.ndarray) -> float:
    """Shifts below this may be rounded up to it at a cost of under 1e-4.

    log M_k grows about with the square of the shift, so the cost is the square
    of the threshold against the mean square, for the profile that has least.
    """
    sizes = counts.sum(axis=1)
    used = sizes > 0
    mean_square = np.min((counts[used] @ (grid / grid[-1]) ** 2) / sizes[used])
    return 0.01 * grid[-1] * math.sqrt(mean_square)


def _is_convex(noise: Noise, top: float, powers: np.ndarray) -> np.ndarray:
    """For each power, whether the slopes of f_k's secants never fall on [0, top].

    Between the knots, and within the tolerance for rounding, f_k may bend the other
    way; `_CONVEXITY_SLACK` pays for that.
    """
    knots = top * np.concatenate([2.0 ** -np.arange(12.0, 5.0, -1.0), _EVEN[1:]])
    x = np.concatenate([[0.0], knots])
    y = np.concatenate([np.zeros([1, powers.size]), log_moments(noise, knots, powers)])
    slopes = np.diff(y, axis=0) / np.diff(x)[:, None]
    return np.all(slopes[1:] >= slopes[:-1] * (1.0 - 1e-6), axis=0)


def _interpolate(noise: Noise, grid: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Upper bounds at the points of a grid, by one polynomial for each octave."""
    # Octaves of the standard density, so that all scales share them: a search
    # for a scale evaluates hardly more moments than a single scale does.
    standard = noise.with_scale(1.0)
    points = np.log(grid / noise.scale)
    octaves = np.floor(points / math.log(2.0)).astype(int)
    values = np.empty([grid.size, powers.size])
    for octave in np.unique(octaves):
        low = octave * math.log(2.0)
        fits = _fits(standard, low, low + math.log(2.0), tuple(powers))
        inside = np.flatnonzero(octaves == octave)
        # Only by the ends between them: rounding may put a point just outside.
        which = np.searchsorted([fit.high for fit in fits[:-1]], points[inside])
        for index, fit in enumerate(fits):
            chosen = inside[which == index]
            values[chosen] = fit.upper_bound(points[chosen])
    return values


@dataclasses.dataclass(frozen=True)
class _Fit:
    """log f_k as polynomials in log tau on an interval, and their error."""

    low: float
    high: float
    coefficients: np.ndarray
    error: np.ndarray

    def upper_bound(self, log_shifts: np.ndarray) -> np.ndarray:
        center, radius = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        position = (log_shifts - center) / radius
        fit = np.polynomial.chebyshev.chebval(position, self.coefficients)
        # Three times the error seen between the knots.
        return np.exp(fit.T + 3.0 * self.error) * (1.0 + 1e-9)


@functools.lru_cache(maxsize=512)
def _fits(
    noise: Noise, low: float, high: float, powers: tuple[float, ...]
) -> tuple[_Fit, ...]:
    """Fits that cover an interval of log tau, halved until they are good."""
    center, radius = 0.5 * (low + high), 0.5 * (high - low)
    shifts = np.exp(center + radius * np.concatenate([_KNOTS, _CHECKS]))
    logs = np.log(log_moments(noise, shifts, np.array(powers)))
    coefficients = np.polynomial.chebyshev.chebfit(
        _KNOTS, logs[: _KNOTS.size], _KNOTS.size - 1
    )
    fitted = np.polynomial.chebyshev.chebval(_CHECKS, coefficients).T
    error = np.max(np.abs(fitted - logs[_KNOTS.size :]), axis=0)
    if np.max(error) <= 1e-4:
        return (_Fit(low, high, coefficients, error),)
    if radius < 1e-3:
        raise MomentError(
            f"The moments of {noise} are not smooth in the shift, between "
            f"{math.exp(low)} and {math.exp(high)}."
        )
    return (
        *_fits(noise, low, center, powers),
        *_fits(noise, center, high, powers),
    )
