"""What a pass of balls in bins costs: each example in one of b releases, at random.

**The pair.** Fix the bins of all other examples. A pass then releases b Gaussians, one
after the other, and the example shifts one of them, each with probability 1 / b. With
s = 1 / noise multiplier, and W_i the likelihood ratio of release i alone, the ratio of a
pass with the example (P) to one without it (Q) is

    S = (W_1 + ... + W_b) / b,      W_i = exp(s Z_i - s**2 / 2),

with independent normal Z_i under Q. Both directions are means of convex functions of S
under Q: (S - e^epsilon)+ and (1 - e^epsilon S)+, S**a and S**(1 - a).

**Gradients depend on former releases, and may be shorter.** Then W_i is the value that the
martingale exp(B_i(t) - t / 2) of a Brownian motion of its own has at a time of at most
s**2 that the past has fixed. S is the conditional mean of what it would be if each ran on
to s**2, so by Jensen's inequality no convex function has a greater mean. The bins of the
others are as likely with the example as without it, so they may be fixed (joint convexity);
passes draw their bins anew, and compose.

**Moments.** For integer a, with `k_i` the number of factors from bin i,

    E[S**a] = b**-a  a!  [x**a] (sum_k x**k / k! exp(s**2 k (k - 1) / 2))**b.

**The other direction costs no more: E[S**(1 - a)] <= E[S**a] for a >= 1.** Let p_i be W_i's
share of their sum, R = sum p_i**2. By Ito's formula and Girsanov's theorem, E[S**k] = E_k[exp(k
(k - 1) / 2 integral of R dt)], where under E_k the motion B_i has drift k p_i. The factor
k (k - 1) is the same for k = a and 1 - a: it remains to compare R. The gaps between the
ranked B_i are a Brownian motion in the orthant with the reflection of competing particles
and drift k (p_(i) - p_(i+1)): never negative for k = a, never positive for k = 1 - a. This
reflection is monotone in its drift (Harrison and Reiman, 1981; Kella and Whitt, 1996; for ranked
particles Sarantsev, 2019), so with the same noise of ranks all gaps are at least as large for
k = a. Larger gaps make more unequal shares: R is larger, at all times.

**Privacy loss distribution.** If each value is spread over its two neighbours in a grid such
that the mean stays, means of convex functions do not fall (the idea of "Connect the
Dots"). So sums of spread values bound both directions at once. What lies beyond the grid is
spread over 0 and infinity.

**Lots of fixed capacity.** Where no bin holds more of the others than fit beside one more
example, the example joins a sum and moves nobody. All else happens with the same probability
under both neighbours, and is added to delta (`data/sampling/balls_in_bins_batches.py`).

References:

- Chua, Ghazi, Harrison, Kamath, Kumar, Leeman, Manurangsi, Sinha, Zhang (2024), *Balls-and-Bins
  Sampling for DP-SGD*, 2412.16802.
- Feldman, Shenfeld (2026), *Efficient privacy loss accounting for subsampling and random
  allocation*, 2602.17284: convolution of likelihood ratios.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

# Points of a grid; a sum of two variables has this many squared terms.
_POINTS = 1500
# Probability, and share of the mean, that a grid may leave out at either end.
_TAIL = 1e-18


def rdp_of_pass(
    noise_multiplier: float, bins: int, orders: npt.ArrayLike
) -> np.ndarray:
    """RDP of one pass, in both directions, at each order.

    Between integers, (order - 1) * rdp is convex and lies below its chord.

    Example: more bins hide an example better.

    >>> [float(rdp_of_pass(2.0, bins, [4.0])[0].round(4)) for bins in (1, 10, 100)]
    [0.5, 0.0563, 0.0057]
    """
    orders = np.asarray(orders, np.float64)
    if noise_multiplier == 0:
        return np.full(orders.shape, np.inf)
    greatest = max(2, math.ceil(orders.max()))
    cumulants = _log_moments(noise_multiplier, bins, greatest)[1:]
    # Logarithms near 0 of sums near 1 are good to about 1e-13.
    cumulants = np.maximum(cumulants, 0.0) + 1e-12
    rdp = np.interp(orders, np.arange(1, greatest + 1), cumulants) / (orders - 1.0)
    return np.minimum(rdp, orders / (2.0 * noise_multiplier**2))


@functools.lru_cache(maxsize=64)
def _log_moments(noise_multiplier: float, bins: int, greatest: int) -> np.ndarray:
    """log E[S**a] for a = 0, ..., greatest."""
    k = np.arange(greatest + 1)
    log_factorial = special.gammaln(k + 1)
    one_bin = k * (k - 1) / (2.0 * noise_multiplier**2) - log_factorial
    all_bins = _power(one_bin, bins, _log_product)
    return all_bins + log_factorial - k * math.log(bins)


def _log_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logarithms of the coefficients of a product of two series, as far as given."""
    return np.array(
        [special.logsumexp(a[: n + 1] + b[n::-1]) for n in range(len(a))], np.float64
    )


def _power(base: Any, exponent: int, multiply: Any) -> Any:
    """`base` multiplied `exponent` times, by squaring."""
    result = None
    while True:
        if exponent & 1:
            result = base if result is None else multiply(result, base)
        exponent >>= 1
        if not exponent:
            return result
        base = multiply(base, base)


class _Ratios(NamedTuple):
    """A sum of likelihood ratios under Q, on a grid.

    Probability that is missing is at 0, and what is missing of the mean at infinity.
    """

    values: np.ndarray
    weights: np.ndarray


@functools.lru_cache(maxsize=16)
def loss_distribution(noise_multiplier: float, bins: int, interval: float) -> Any:
    """The `PrivacyLossDistribution` of one pass, in both directions.

    Args:
        noise_multiplier: Standard deviation over the norm of one example's vector.
        bins: Releases in a pass.
        interval: Losses are whole multiples of it.
    """
    from dp_accounting.pld import privacy_loss_distribution

    total = _power(_one_release(noise_multiplier), bins, _sum)
    logs = np.log(total.values) - math.log(bins)
    low = math.floor(logs.min() / interval)
    edges = np.arange(low, math.ceil(logs.max() / interval) + 2)
    ratios = np.exp(interval * edges)
    weights = _spread(total.values / bins, logs, total.weights, interval * low, ratios)
    present = np.flatnonzero(weights)
    with_example = ratios * weights
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        {int(edges[j]): float(with_example[j]) for j in present},
        max(0.0, 1.0 - float(with_example.sum())),
        interval,
        rounded_probability_mass_function_add={
            int(-edges[j]): float(weights[j]) for j in present
        },
        infinity_mass_add=max(0.0, 1.0 - float(weights.sum())),
        symmetric=False,
    )


def _one_release(noise_multiplier: float) -> _Ratios:
    """The ratio of one release, spread over a grid with all that is between its points."""
    shift = 1.0 / noise_multiplier
    end = -float(special.ndtri(_TAIL))
    # Under the neighbour with the example, the normal is shifted.
    normals = np.linspace(-end, end + shift, _POINTS)
    values = np.exp(shift * normals - shift**2 / 2)
    probability = np.diff(special.ndtr(normals))
    mean = np.diff(special.ndtr(normals - shift))
    # Upper tails as lower ones, which are exact however small.
    upper = normals[:-1] > 0
    probability[upper] = -np.diff(special.ndtr(-normals))[upper]
    upper = normals[:-1] > shift
    mean[upper] = -np.diff(special.ndtr(shift - normals))[upper]
    right = (mean - probability * values[:-1]) / np.diff(values)
    right = np.clip(right, 0.0, probability)
    weights = np.zeros(values.shape)
    weights[:-1] += probability - right
    weights[1:] += right
    return _Ratios(values, weights)


def _sum(a: _Ratios, b: _Ratios) -> _Ratios:
    """The sum of two independent ones, on a grid of its own."""
    values = np.add.outer(a.values, b.values).ravel()
    weights = np.multiply.outer(a.weights, b.weights).ravel()
    logs = np.log(values)
    low, high = _essential_range(values, logs, weights)
    inside = (logs >= low) & (logs <= high)
    grid = np.exp(np.linspace(low, high, _POINTS))
    grid_weights = _spread(values[inside], logs[inside], weights[inside], low, grid)
    return _Ratios(grid, grid_weights)


def _essential_range(
    values: np.ndarray, logs: np.ndarray, weights: np.ndarray
) -> tuple[float, float]:
    """Logarithms between which lies all but `_TAIL` of probability and of the mean."""
    start, stop = float(logs.min()), float(logs.max())
    width = (stop - start) / 4096 * (1 + 1e-9)
    cell = ((logs - start) / width).astype(np.int64)
    probability = np.cumsum(np.bincount(cell, weights))
    mean = np.bincount(cell, weights * values)
    mean_above = np.cumsum(mean[::-1])[::-1]
    low = int(np.searchsorted(probability, _TAIL))
    high = int(np.count_nonzero(mean_above > _TAIL * mean_above[0]))
    return start + low * width, min(stop, start + high * width)


def _spread(
    values: np.ndarray,
    logs: np.ndarray,
    weights: np.ndarray,
    start: float,
    grid: np.ndarray,
) -> np.ndarray:
    """Weights on a geometric grid from exp(start) on with the same mean."""
    step = math.log(grid[-1] / grid[0]) / (len(grid) - 1)
    left = np.clip(((logs - start) / step).astype(np.int64), 0, len(grid) - 2)
    share = (values - grid[left]) / (grid[left + 1] - grid[left])
    to_right = weights * np.clip(share, 0.0, 1.0)
    result = np.bincount(left, weights - to_right, len(grid))
    return result + np.bincount(left + 1, to_right, len(grid))
