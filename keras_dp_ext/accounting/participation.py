"""How far one example can move C G: the sensitivity of correlated noise.

G holds the sums of all releases of a run, one a row, and C is the strategy
(`noise/correlated/base.py`). An example of norm at most 1 that takes part in the releases
S adds rows u_t, t in S, to G. With X = C^T C,

    |C U|^2 = sum over s, t in S of X_st <u_s, u_t>
           <= sum over s, t in S of X_st = |C 1_S|^2,

because no entry of C, and so none of X, is negative, and <u_s, u_t> <= 1 (Cauchy and
Schwarz). Equal vectors of norm 1 attain it: the worst example pushes the same way each time,
in any dimension. For the same reason a participation that is left out, or shorter, only
lowers it. What remains is the worst S that the sampling allows:

- *Every p-th release* (data in a fixed order, p releases a pass; p = 1 for the full data
  set): S is one of p sets, and all are tried. Of a Toeplitz matrix the set that begins with
  the first release is the worst: the image of any other is the same sequence, begun later.
- *Once in a pass* (data that are shuffled again): S has one release of each pass, anywhere
  in it. Then |C 1_S|^2 is at most the sum over pairs of passes of the greatest X_st with s in
  one and t in the other.

References:

- Choquette-Choo, McMahan, Rush, Thakurta (2022), "Multi-Epoch Matrix Factorization Mechanisms
  for Private Machine Learning", 2211.06530, Section 2 and Corollary 2.1.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import signal

from keras_dp_ext.noise.correlated import CorrelatedNoise
from keras_dp_ext.noise.correlated.toeplitz import comb

# Beyond this, sequences do not fit into memory; nobody trains as long.
_LONGEST = 2**22
_LARGEST_MATRIX = 2**12
_MOST_NUMBERS = 2**31

# Rounding errors of sums in float64 stay far below this.
_ROUNDING = 1e-9


def every(noise: CorrelatedNoise, steps: int, period: int) -> float:
    """Sensitivity where an example takes part in every `period`-th release.

    Args:
        noise: Of which the scale does not count.
        steps: Number of releases.
        period: From one participation to the next.

    Example: a run of 8 releases has 4 nodes above its first one.

    >>> from keras_dp_ext.noise import TreeAggregation
    >>> round(every(TreeAggregation(), steps=8, period=8), 6)
    2.0
    """
    if steps == 0:
        return 0.0
    _check(steps)
    period = min(period, _power_of_two(steps))
    if not noise.is_toeplitz and period * _power_of_two(steps) > _MOST_NUMBERS:
        raise ValueError(
            f"A tree over {steps} releases, with an example in every {period}th, is too "
            "large to compute its sensitivity. Use `dp.noise.Banded` or "
            f"`dp.noise.BufferedToeplitz`. Received: noise={noise}"
        )
    squares = _every_squared(noise.with_scale(1.0), _power_of_two(steps), period)
    return float(np.sqrt(squares[steps - 1]))


def once_per_pass(noise: CorrelatedNoise, steps: int, length: int) -> float:
    """Sensitivity, or more, where an example takes part once in each pass.

    Args:
        noise: Of which the scale does not count.
        steps: Number of releases. The first begins a pass.
        length: Releases of a pass.
    """
    if steps == 0:
        return 0.0
    _check(steps)
    return float(np.sqrt(_once_squared(noise.with_scale(1.0), steps, length)))


@functools.lru_cache(maxsize=64)
def _every_squared(noise: CorrelatedNoise, steps: int, period: int) -> np.ndarray:
    """The square of the sensitivity after 1, 2, ..., `steps` releases."""
    pattern = comb(steps, period)
    best = np.cumsum(noise.encode(pattern) ** 2)
    if not noise.is_toeplitz:
        for _ in range(1, period):
            pattern = np.concatenate([[0.0], pattern[:-1]])
            best = np.maximum(best, np.cumsum(noise.encode(pattern) ** 2))
    return best * (1.0 + _ROUNDING)


@functools.lru_cache(maxsize=256)
def _once_squared(noise: CorrelatedNoise, steps: int, length: int) -> float:
    passes = -(-steps // length)
    if not noise.is_toeplitz:
        return _once_squared_by_blocks(noise, steps, length) * (1.0 + _ROUNDING)
    # X_st is at most the product of the first column of C and the (t - s)-th, whose
    # lower ends are both inside.
    column = noise.encode(comb(steps, steps))
    products = signal.correlate(column, column, method="auto")[steps - 1 :]
    products = np.maximum(products, 0.0)  # A sum of products; FFT may round below 0.
    total = passes * products[0]
    for apart in range(1, passes):
        lags = products[(apart - 1) * length + 1 : (apart + 1) * length]
        total += 2 * (passes - apart) * (lags.max() if len(lags) else 0.0)
    # An FFT rounds relative to the largest product.
    return total * (1.0 + _ROUNDING) + passes**2 * products[0] * 1e-12


def _once_squared_by_blocks(noise: CorrelatedNoise, steps: int, length: int) -> float:
    restart = getattr(noise, "restart_every", None)
    if restart is not None and length % restart == 0:
        # No tree reaches from one pass into another.
        return -(-steps // length) * every(noise, min(steps, length), length) ** 2
    if steps > _LARGEST_MATRIX:
        raise ValueError(
            f"A tree over {steps} releases of shuffled data is too large to compute "
            "its sensitivity. Begin a new tree with each pass: "
            f"TreeAggregation(restart_every={length}), or train on "
            f"`dp.data.fixed_order_batches`. Received: noise={noise}"
        )
    matrix = noise.matrix(steps)
    starts = np.arange(0, steps, length)
    products = matrix.T @ matrix
    greatest = np.maximum.reduceat(products, starts, axis=0)
    return float(np.maximum.reduceat(greatest, starts, axis=1).sum())


def _power_of_two(steps: int) -> int:
    """At least `steps`: few lengths, so that results are found again."""
    return 1 << (steps - 1).bit_length()


def _check(steps: int) -> None:
    if steps > _LONGEST:
        raise ValueError(
            f"A run with correlated noise has at most {_LONGEST} releases here. "
            f"Received: {steps} releases"
        )
