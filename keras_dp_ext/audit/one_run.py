"""Epsilon from one training: the statistics of many guesses about many canaries."""

from __future__ import annotations

import numpy as np
from scipy import optimize, special, stats

# An epsilon beyond any measurement: e^-60 is less than the rounding of 1.
_LARGEST = 60.0


def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """How likely so many correct guesses are, at most, under (epsilon, delta)-DP.

    Each canary was in the training data with probability 1/2, independently. For
    `guesses` of them the adversary said "in" or "out", abstaining from the rest.
    If the training were (epsilon, delta)-DP, the number W of correct guesses
    obeys

        P[W >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i,

    where B is binomial with success probability e^eps / (1 + e^eps).

    Args:
        canaries: m, how many there were.
        guesses: How many were guessed, fixed beforehand.
        correct: v, how many of the guesses were right.
        epsilon: The claim under test.
        delta: The claim under test.

    Returns:
        The bound, at most 1.

    Example:

    >>> round(one_run_p_value(10, guesses=10, correct=10, epsilon=0, delta=0), 6)
    0.000977

    References:

    - Steinke, Nasr, Jagielski (2023), "Privacy Auditing with One (1) Training
      Run", Theorem 5.2.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            "Argument `correct` must be at most `guesses`, and these at most "
            f"`canaries`. Received: correct={correct}, guesses={guesses}, "
            f"canaries={canaries}"
        )
    if correct == 0:
        return 1.0
    success = special.expit(epsilon)
    tail = stats.binom.sf(correct - 1, guesses, success)
    if delta == 0:
        return float(min(1.0, tail))
    # P[v > B >= v - i] for i = 1 .. v; beyond, it does not grow any more.
    below = stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, success)
    slope = np.max(np.cumsum(below) / np.arange(1, correct + 1))
    return float(min(1.0, tail + 2.0 * canaries * delta * slope))


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, error: float
) -> float:
    """The greatest epsilon that the guesses rule out.

    Args:
        canaries: See `one_run_p_value`.
        guesses: See `one_run_p_value`.
        correct: See `one_run_p_value`.
        delta: Delta at which epsilon is bounded.
        error: Probability with which the bound may fail.

    Returns:
        A lower bound on epsilon.

    Example:

    >>> round(one_run_epsilon(1000, 100, correct=100, delta=1e-5, error=0.05), 2)
    3.47
    """

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - error

    if excess(0.0) > 0:
        return 0.0
    # Ruling out one epsilon rules out all smaller ones, so any crossing will do: at
    # the largest epsilon every guess may be right, which rules out nothing.
    grid = np.linspace(0.0, _LARGEST, 1201)
    first = next(i for i, value in enumerate(grid) if excess(value) > 0)
    return float(optimize.brentq(excess, grid[first - 1], grid[first]))
