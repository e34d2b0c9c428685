"""Whether two computations of one gradient agree up to rounding.

No tolerance is tuned to a model. How much of a gradient is rounding is measured: the
backward pass is linear in the weights of the losses, and three times the weights give
three times the gradient but for roundings, which all come out different (Vignes,
"Discrete stochastic arithmetic", 2004). Where that leaves a doubt, float64 decides: a
wrong rule is wrong in any precision, while rounding shrinks by 2**29.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Parts of the smallest error of a rule that must be noticed (1e-3): a third in a norm,
# a tenth in a sum, where the error of one row may happen to meet others that weigh more.
_SHARE, _SHARE_OF_SUM = 3e-4, 1e-4

# By how much a rounding error may exceed the one that was measured.
_ROUNDINGS = 16.0

# An error of float32 arithmetic shrinks to 2**-29 of its size in float64.
_SHRINKS = 1e-4

# Numbers that are compared at a time.
_BLOCK = 2**16

# Below, the square of a float32 is zero.
_VANISHES = 1e-19


def largest(value: np.ndarray) -> float:
    # `np.abs` would copy all of them.
    return float(max(np.max(value, initial=0.0), -np.min(value, initial=0.0)))


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest one; infinite if only one of two is finite."""
    pairs = list(zip(_blocks(a), _blocks(b), strict=True))
    apart = max((largest(x - y) for x, y in pairs), key=_or_infinite, default=0.0)
    if np.isfinite(apart):
        return apart
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return float("inf")
    return largest(a[finite] - b[finite])


def add_multiple(total: np.ndarray, value: np.ndarray, factor: float) -> None:
    """`total += factor * value`, without a third array of that size."""
    factor = total.dtype.type(factor)
    for sums, block in zip(_blocks(total), _blocks(value), strict=True):
        sums += factor * block


def sum_of_squares(value: np.ndarray, scale: np.ndarray | float = 1.0) -> float:
    """The sum of the squares of `value / scale`, in float64."""
    if not isinstance(scale, float):
        value = value / scale
    # Not by a product of matrices, for which NumPy starts threads that wait busily.
    blocks = (np.square(block, dtype=np.float64) for block in _blocks(value))
    return float(sum(np.sum(block) for block in blocks))


def _blocks(value: np.ndarray) -> list[np.ndarray]:
    """Pieces that stay in a processor's cache; views, where `value` is contiguous."""
    flat = value.reshape(-1)
    return [flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK)]


def _or_infinite(value: float) -> float:
    return value if np.isfinite(value) else float("inf")


def agree(
    computed: np.ndarray, expected: np.ndarray, rounding: Callable[[], float]
) -> bool:
    """In one precision; `False` where there is a doubt.

    Args:
        computed: The gradient by a rule.
        expected: The ordinary gradient.
        rounding: Measures the rounding error of either.
    """
    apart = difference(computed, expected)
    size = max(largest(computed), largest(expected))
    if apart <= _SHARE_OF_SUM * size or size <= _VANISHES**2:
        return True
    # All of it is rounding: of a bias before a normalisation, of keys' biases.
    return size <= _ROUNDINGS * rounding()


def agree_in_double(
    computed: np.ndarray,
    expected: np.ndarray,
    rounding: Callable[[], float],
    apart_before: float,
) -> bool:
    """In float64, after a doubt in float32.

    Args:
        computed: By a rule, in float64.
        expected: The ordinary gradient, in float64.
        rounding: Measures the rounding error of either, in float64.
        apart_before: The difference in float32.
    """
    if agree(computed, expected, rounding):
        return True
    return difference(computed, expected) <= _SHRINKS * apart_before


def agree_roughly(
    computed: np.ndarray, expected: np.ndarray, rounding: float, share: float
) -> bool:
    """Where there is no float64: up to all that rounding can explain."""
    apart = difference(computed, expected)
    return apart <= share * largest(expected) + 4 * _ROUNDINGS * rounding


def norms_agree(
    norm: float,
    expected: float,
    rounding: Callable[[], float],
    spare: Callable[[], float] = lambda: 0.0,
) -> bool:
    """Whether a norm is right. Longer than the truth by rounding is safe.

    Args:
        norm: By the rules.
        expected: Of the ordinary gradient.
        rounding: Measures that of the ordinary gradient's norm.
        spare: How much the rules may have added for their own roundings.
    """
    if not np.isfinite(norm) or not np.isfinite(expected):
        return not np.isfinite(norm) and not np.isfinite(expected)
    allowed = _SHARE * expected + _VANISHES
    if abs(norm - expected) <= allowed:
        return True
    if max(norm, expected) <= _ROUNDINGS * rounding():
        return True
    return expected - allowed <= norm <= expected + allowed + spare()
