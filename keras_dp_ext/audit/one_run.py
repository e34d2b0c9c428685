"""Epsilon from one training: the statistics of many guesses about many canaries.

Each canary was in the training data with probability 1/2, independently. For some
of them the adversary said "in" or "out", abstaining from the rest. Let W be the
number of correct guesses out of r, and B binomial with r trials and success
probability q = e^eps / (1 + e^eps). For an (eps, delta)-DP training on m canaries

    P[W >= v] <= P[B >= v] + m delta / (1 + e^eps).                            (1)

Proof. Fix the coins of the first i - 1 canaries. With coin i up or down, the
trained model has one of two distributions, P and Q, that are (eps, delta) close
(the later coins are averaged out). Given the model and the earlier coins, a guess
of coin i is right with a probability that exceeds q only where the densities have
p > e^eps q' or q' > e^eps p, and then by (p - e^eps q') / ((p + q') (1 + e^eps)),
or the same with p and q' exchanged. Averaged over the model, of density
(p + q') / 2, the excess is at most 2 delta / (2 (1 + e^eps)). Now draw the coins
one by one from uniform numbers: the guesses that are right by the part of the
uniform below q are B, and that any guess is right by the excess has, over all m
canaries, probability m delta / (1 + e^eps) at most.

Steinke et al. print another term in delta (Theorem 5.2, and Appendix D),
2 m delta max_i P[v > B >= v - i] / i. Brute force over all algorithms with three
canaries exceeds it where v is small (`tests/audit/test_one_run.py`): which coins
are given away may depend on the earlier ones. (1) holds for every v.

References:

- Steinke, Nasr, Jagielski (2023), "Privacy Auditing with One (1) Training Run".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

# Where epsilon is looked for; at its end every guess may be right.
_GRID = np.linspace(0.0, 60.0, 2401)


def one_run_p_value(
    canaries: int,
    guesses: int,
    correct: int,
    epsilon: npt.ArrayLike,
    delta: float,
) -> np.ndarray:
    """How likely so many correct guesses are, at most, under (epsilon, delta)-DP.

    Args:
        canaries: m, how many there were.
        guesses: r, how many were guessed, fixed beforehand.
        correct: v, how many of the guesses were right.
        epsilon: The claim under test, or several.
        delta: The claim under test.

    Returns:
        The bound (1) for each epsilon, at most 1.

    Raises:
        ValueError: If there are more correct guesses than guesses, or more of
            these than canaries.

    Example:

    >>> float(one_run_p_value(10, guesses=10, correct=10, epsilon=0, delta=0))
    0.0009765625
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            "Argument `correct` must be at most `guesses`, and these at most "
            f"`canaries`. Received: correct={correct}, guesses={guesses}, "
            f"canaries={canaries}"
        )
    epsilon = np.asarray(epsilon, np.float64)
    tail = stats.binom.sf(correct - 1, guesses, special.expit(epsilon))
    return np.minimum(1.0, tail + canaries * delta * special.expit(-epsilon))


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
    3.49
    """

    def excess(epsilon: npt.ArrayLike) -> np.ndarray:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - error

    # Ruling out one epsilon rules out all smaller ones, so the last counts.
    ruled_out = np.flatnonzero(excess(_GRID) <= 0)
    if not ruled_out.size:
        return 0.0
    last = ruled_out[-1]
    return float(optimize.brentq(excess, _GRID[last], _GRID[last + 1]))
