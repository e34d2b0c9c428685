"""How many nats a pure differentially private release can reveal."""

from __future__ import annotations

import math


def mutual_information_bound(epsilon: float) -> float:
    """Upper bound on the mutual information of a pure epsilon-DP release.

    If every two values that the private input can take are epsilon-
    indistinguishable after the release, then
    `I(input; output) <= epsilon * (exp(epsilon) - 1) / 2` nats. Read for one
    person: it bounds what the release tells about *one* record, the others being
    fixed. The information about a whole data set is not bounded by it.

    Args:
        epsilon: Privacy parameter of the release, with delta = 0.

    Returns:
        The bound in nats; infinite where it exceeds the range of a float.

    Raises:
        ValueError: If `epsilon` is negative or not a number.

    Example:

    >>> round(mutual_information_bound(1.0), 4)
    0.8591

    References:
        Xiang et al., "Differentially-Private Deep Learning With Directional
        Noise" (2021), Theorem 2.
    """
    if not epsilon >= 0:
        raise ValueError(
            f"Argument `epsilon` must be at least 0. Received: epsilon={epsilon}"
        )
    try:
        return epsilon * math.expm1(epsilon) / 2
    except OverflowError:
        return math.inf
