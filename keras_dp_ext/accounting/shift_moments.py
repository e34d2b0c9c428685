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


def log_vector_moments(
    noise: Noise,
    magnitudes: np.ndarray,
    counts: np.ndarray,
    powers: np.ndarray,
    replaced: bool = False,
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

    *Replaced rows.* If one example turns a row e into e', the shift e' - e has
    coordinates of at most a_i + b_i, where a and b are arrangements of two
    profiles in unknown orders. If f_k is convex on [0, 2 max],

        f_k(a_i + b_i) <= (f_k(2 a_i) + f_k(2 b_i)) / 2,

    and summing over i removes the arrangements: the bound is the maximum over the
    profiles of the sum of f_k(2 a). Otherwise, f_k being nondecreasing,

        f_k(a_i + b_i) <= f_k(2 max(a_i, b_i)) <= f_k(2 a_i) + f_k(2 b_i),

    and the bound is twice that maximum. Convexity is checked numerically.

    Args:
        noise: Density of every coordinate.
        magnitudes: `[bins]`, ascending and positive: those a row may have.
        counts: `[profiles, bins]`, how often each profile has each of them.
        powers: Real powers k above 1.
        replaced: Whether a row is changed rather than added.

    Returns:
        Array of `len(powers)`.

    Raises:
        MomentError: If a moment cannot be bounded.
    """
    powers = np.asarray(powers, np.float64)
    if np.size(magnitudes) == 0:
        return np.zeros(powers.shape)
    grid = (2.0 if replaced else 1.0) * np.asarray(magnitudes, np.float64)
    table = _Table.build(noise, grid, powers, _relevant(grid, counts))
    sums = np.max(counts @ table.values, axis=0)
    if replaced:
        sums = np.where(table.is_convex(), sums, 2.0 * sums)
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


@dataclasses.dataclass
class _Table:
    """Upper bounds on f_k at the points of a grid, nondecreasing in tau."""

    values: np.ndarray
    knots: np.ndarray
    knot_values: np.ndarray

    @classmethod
    def build(cls, noise, grid, powers, smallest):
        if grid.size <= _DIRECT:
            knots = np.unique(np.concatenate([grid, np.linspace(0, grid[-1], 9)[1:]]))
            knot_values = log_moments(noise, knots, powers)
            values = knot_values[np.searchsorted(knots, grid)]
        else:
            clipped = np.maximum(grid, smallest)
            values, knots, knot_values = _interpolate(noise, clipped, powers)
        return cls(np.maximum.accumulate(values, axis=0), knots, knot_values)

    def is_convex(self) -> np.ndarray:
        """For each power, whether the secants' slopes never fall, from 0 on."""
        x = np.concatenate([[0.0], self.knots])
        y = np.concatenate([np.zeros([1, self.knot_values.shape[1]]), self.knot_values])
        slopes = np.diff(y, axis=0) / np.diff(x)[:, None]
        return np.all(slopes[1:] >= slopes[:-1] * (1.0 - 1e-6), axis=0)


def _interpolate(noise, grid, powers):
    """Upper bounds at the points of a grid, by one polynomial for each octave."""
    # Octaves of the standard density, so that all scales share them: a search
    # for a scale evaluates hardly more moments than a single scale does.
    standard = noise.with_scale(1.0)
    points = np.log(grid / noise.scale)
    octaves = np.floor(points / math.log(2.0)).astype(int)
    values = np.empty([grid.size, powers.size])
    knots, knot_values = [], []
    for octave in np.unique(octaves):
        low = octave * math.log(2.0)
        for fit in _fits(standard, low, low + math.log(2.0), tuple(powers)):
            inside = (octaves == octave) & (points >= fit.low) & (points <= fit.high)
            values[inside] = fit.upper_bound(points[inside])
            knots.append(fit.knots)
            knot_values.append(fit.knot_values)
    knots = noise.scale * np.concatenate(knots)
    # The last octave may reach beyond the grid.
    order = np.argsort(knots)[: max(2, np.count_nonzero(knots <= grid[-1]))]
    return values, knots[order], np.concatenate(knot_values)[order]


@dataclasses.dataclass(frozen=True)
class _Fit:
    """log f_k as polynomials in log tau on an interval, and their error."""

    low: float
    high: float
    coefficients: np.ndarray
    error: np.ndarray
    knots: np.ndarray
    knot_values: np.ndarray

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
    exact = log_moments(noise, shifts, np.array(powers))
    logs = np.log(exact)
    coefficients = np.polynomial.chebyshev.chebfit(
        _KNOTS, logs[: _KNOTS.size], _KNOTS.size - 1
    )
    fitted = np.polynomial.chebyshev.chebval(_CHECKS, coefficients).T
    error = np.max(np.abs(fitted - logs[_KNOTS.size :]), axis=0)
    if np.max(error) <= 1e-4:
        order = np.argsort(shifts)
        return (_Fit(low, high, coefficients, error, shifts[order], exact[order]),)
    if radius < 1e-3:
        raise MomentError(
            f"The moments of {noise} are not smooth in the shift, between "
            f"{math.exp(low)} and {math.exp(high)}."
        )
    return (
        *_fits(noise, low, center, powers),
        *_fits(noise, center, high, powers),
    )
