"""Moments of a whole shifted vector: products over coordinates, as sums of logs."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from keras_dp_ext.accounting.moments import MomentError, log_moments
from keras_dp_ext.noise import Noise

# With more distinct magnitudes than this, log M_k is interpolated.
_DIRECT = 32
# Interpolation: panels whose ends differ by this factor, Chebyshev nodes in log tau.
_PANEL = 4.0
_KNOTS = 8


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

    *Domination.* f_k is replaced by its running maximum in tau, which does not
    decrease; then a vector that is dominated rank by rank by a profile has at most
    the profile's sum. The maximum over the profiles is taken for each k: a sum
    with nonnegative coefficients over k is then bounded for every profile.

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
    """log f_k as a polynomial in log tau on each panel, inflated by its error.

    The error is measured at points between the knots; a panel where it is not
    small is halved.
    """
    values = np.empty([grid.size, powers.size])
    panels = _panels(grid[0], grid[-1])
    knots, knot_values = [], []
    while panels:
        low, high = panels.pop()
        center, radius = 0.5 * (low + high), 0.5 * (high - low)
        cosines = np.cos(np.pi * (np.arange(_KNOTS) + 0.5) / _KNOTS)[::-1]
        checks = np.array([-0.96, -0.2, 0.3, 0.97])
        points = center + radius * np.concatenate([cosines, checks])
        exact = log_moments(noise, np.exp(points), powers)
        fit = np.polynomial.chebyshev.chebfit(
            cosines, np.log(exact[:_KNOTS]), _KNOTS - 1
        )
        error = np.abs(
            np.polynomial.chebyshev.chebval(checks, fit) - np.log(exact[_KNOTS:]).T
        )
        error = np.max(error, axis=1)
        if np.max(error) > 1e-4:
            if radius < 1e-3:
                raise MomentError(
                    f"The moments of {noise} are not smooth in the shift, between "
                    f"{math.exp(low)} and {math.exp(high)}."
                )
            panels += [(low, center), (center, high)]
            continue
        inside = (grid >= math.exp(low) * (1 - 1e-12)) & (
            grid <= math.exp(high) * (1 + 1e-12)
        )
        position = np.clip((np.log(grid[inside]) - center) / radius, -1.0, 1.0)
        bound = np.polynomial.chebyshev.chebval(position, fit) + 3.0 * error[:, None]
        values[inside] = np.exp(bound.T) * (1.0 + 1e-9)
        knots.append(np.exp(points))
        knot_values.append(exact)
    order = np.argsort(np.concatenate(knots))
    return (
        values,
        np.concatenate(knots)[order],
        np.concatenate(knot_values)[order],
    )


def _panels(smallest: float, greatest: float) -> list[tuple[float, float]]:
    """Panels in log tau that cover the range, each up to log(_PANEL) long."""
    low, high = math.log(smallest), math.log(greatest)
    number = max(1, math.ceil((high - low) / math.log(_PANEL)))
    edges = np.linspace(low, high, number + 1)
    return list(itertools.pairwise(edges))
