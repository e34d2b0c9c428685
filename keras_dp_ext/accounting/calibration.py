"""How much noise, or how many releases, a target epsilon allows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from scipy import optimize

from keras_dp_ext._checks import check_positive
from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.events import Event
from keras_dp_ext.accounting.sampling import Sampling

#: Where the search for the number of releases that a budget allows ends.
MOST_RELEASES = 2**40


def calibrate_noise(
    event_at: Callable[[float], Event],
    sampling: Sampling,
    releases: int,
    target_epsilon: float,
    delta: float,
    accountant: str = "rdp",
    tolerance: float = 1e-3,
    guess: float = 1.0,
    others: Sequence[accountants.Entry] = (),
) -> float:
    """The least noise scale whose epsilon is at most the target.

    Args:
        event_at: From a scale (noise multiplier, standard deviation, ...) to the
            event that a release with it is. More noise must not cost more.
        sampling: How examples are chosen.
        releases: Number of releases.
        target_epsilon: Greatest epsilon allowed.
        delta: Target delta.
        accountant: "rdp" or "pld".
        tolerance: How far above the least scale the result may lie, relatively.
        guess: Where to start the search.
        others: What else is released on the same data and must fit into the target,
            such as a private PCA: triples of event, sampling and count.

    Returns:
        A scale; its epsilon has been computed and is at most the target.

    Raises:
        ValueError: If no amount of noise reaches the target.

    Example:

    >>> from keras_dp_ext.accounting import GaussianRelease, Poisson
    >>> sigma = calibrate_noise(
    ...     GaussianRelease, Poisson(256 / 60000), 14063, target_epsilon=3, delta=1e-5
    ... )
    >>> round(sigma, 2)
    1.01
    """
    check_positive("target_epsilon", target_epsilon)
    if releases == 0:
        raise ValueError(
            "Argument `releases` must be positive: without releases any noise will "
            f"do. Received: releases={releases}"
        )

    @functools.cache
    def excess(log_scale: float) -> float:
        """log(epsilon / target), which falls almost linearly in log(scale)."""
        event = event_at(math.exp(log_scale))
        entries = [*others, (event, sampling, releases)]
        spent = accountants.epsilon(entries, delta, accountant)
        evaluated[log_scale] = math.log(max(spent, 1e-12) / target_epsilon)
        return evaluated[log_scale]

    evaluated: dict[float, float] = {}
    step = math.log(2.0)
    if accountant == "pld":
        # PLD needs a little less than RDP, and is slow far away from there.
        guess = calibrate_noise(
            event_at,
            sampling,
            releases,
            target_epsilon,
            delta,
            tolerance=0.01,
            guess=guess,
            others=others,
        )
        step = 0.08
    start = end = math.log(guess)
    direction = 1.0 if excess(start) > 0 else -1.0
    while (excess(end) > 0) == (direction > 0):
        start, end = end, end + direction * step
        if abs(end) > 80:
            raise ValueError(
                "Argument `target_epsilon` cannot be reached by any noise at this "
                f"delta. Received: target_epsilon={target_epsilon}, delta={delta}"
            )
        step *= 2.0
    optimize.brentq(excess, start, end, xtol=0.25 * tolerance)
    # It ends with a point on either side of the root, next to each other.
    return math.exp(min(x for x, value in evaluated.items() if value <= 0))


def calibrate_releases(
    epsilon_of: Callable[[int], float],
    target_epsilon: float,
    at_least: int = 0,
    at_most: int = MOST_RELEASES,
) -> int:
    """The greatest number of releases whose epsilon is at most the target.

    Args:
        epsilon_of: From a number of releases to epsilon; must not decrease.
        target_epsilon: Greatest epsilon allowed.
        at_least: Start of the search: releases that have been made already.
        at_most: End of the search: releases that are planned.

    Returns:
        The number; `at_least - 1` if even `at_least` exceeds the target.

    Example:

    >>> calibrate_releases(lambda releases: 0.3 * releases, target_epsilon=1)
    3
    """
    check_positive("target_epsilon", target_epsilon)
    if epsilon_of(at_least) > target_epsilon:
        return at_least - 1
    good, bad = at_least, min(max(2 * at_least, at_least + 1024), at_most)
    while epsilon_of(bad) <= target_epsilon:
        if bad >= at_most:
            return at_most
        good, bad = bad, min(4 * bad, at_most)
    while bad - good > 1:
        middle = (good + bad) // 2
        if epsilon_of(middle) <= target_epsilon:
            good = middle
        else:
            bad = middle
    return good
