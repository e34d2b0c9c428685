"""Toeplitz strategies: how good one is, and the best of a family.

A lower triangular Toeplitz matrix is a power series c(x) = c_0 + c_1 x + ...; products
and inverses of matrices are those of series. The workload is what training does with
gradients: it adds them up, 1 / (1 - x), with momentum m also 1 / (1 - m x).

The error of a strategy is sens(C)**2 * mean over releases of the variance of A C^-1 Z,
with A the workload: that of the weights, summed up over a training at equal epsilon.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize, signal


def square_root(steps: int) -> np.ndarray:
    """The coefficients of (1 - x)^(-1/2): the best C for long sums, in the limit.

    References:

    - Fichtenberger, Henzinger, Upadhyay (2022), "Constant matters".
    """
    ratios = 1.0 - 0.5 / np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod(ratios)])


def series_inverse(coefficients: np.ndarray, steps: int) -> np.ndarray:
    """The first `steps` coefficients of 1 / c(x)."""
    return signal.lfilter([1.0], coefficients, _impulse(steps))


def mean_squared_error(
    coefficients: np.ndarray,
    steps: int,
    momentum: float = 0.0,
    separation: int | None = None,
) -> float:
    """The error of a strategy for `steps` releases; see the top of this file.

    Args:
        coefficients: c_0, c_1, ..., as many as are not 0, at most `steps`.
        steps: Number of releases.
        momentum: Of the optimizer.
        separation: An example takes part in every `separation`-th release. `None`:
            once.
    """
    loss, _ = _log_error(np.asarray(coefficients, float), steps, momentum, separation)
    return float(np.exp(loss))


def best_coefficients(
    family: Callable[[np.ndarray], tuple[np.ndarray, Callable]],
    start: np.ndarray,
    bounds: list[tuple[float, float]],
    steps: int,
    momentum: float,
    separation: int | None,
) -> np.ndarray:
    """The parameters of the family's member with the least error, by L-BFGS-B.

    Args:
        family: From parameters to coefficients, and to a function that turns a gradient
            by the coefficients into one by the parameters.
        start: Parameters to start from.
        bounds: Of each parameter.
        steps: Number of releases.
        momentum: Of the optimizer.
        separation: See `mean_squared_error`.
    """

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        coefficients, pull_back = family(parameters)
        loss, gradient = _log_error(coefficients, steps, momentum, separation)
        return loss, pull_back(gradient)

    found = optimize.minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B"
    )
    return found.x


def _log_error(
    coefficients: np.ndarray, steps: int, momentum: float, separation: int | None
) -> tuple[float, np.ndarray]:
    """Logarithm of the error, and its gradient by the coefficients."""
    size = len(coefficients)
    inverse = series_inverse(coefficients, steps)
    workload = np.convolve([1.0, -1.0], [1.0, -momentum])
    errors = signal.lfilter([1.0], workload, inverse)
    counts = np.arange(steps, 0, -1)  # In how many of the sums each error is.
    variance = np.sum(counts * errors**2)
    # Backwards through the same filters.
    by_inverse = signal.lfilter([1.0], workload, (2 * counts * errors)[::-1])[::-1]
    squared = signal.lfilter([1.0], coefficients, inverse)
    by_coefficients = -signal.correlate(by_inverse, squared, method="auto")[
        steps - 1 : steps - 1 + size
    ]
    moved = coefficients
    if separation is not None:
        moved = signal.lfilter(coefficients, [1.0], comb(steps, separation))
    sensitivity = np.sum(moved**2)
    by_moved = 2 * moved
    if separation is not None:
        by_moved = signal.correlate(by_moved, comb(steps, separation), method="auto")
        by_moved = by_moved[steps - 1 : steps - 1 + size]
    loss = np.log(variance / steps) + np.log(sensitivity)
    return loss, by_coefficients / variance + by_moved / sensitivity


def comb(steps: int, separation: int) -> np.ndarray:
    """1 in every `separation`-th of `steps` places from the first on, else 0."""
    teeth = np.zeros(steps)
    teeth[::separation] = 1.0
    return teeth


def _impulse(steps: int) -> np.ndarray:
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    return impulse
