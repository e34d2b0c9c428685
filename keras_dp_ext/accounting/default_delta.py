"""The delta that is used where none is given, and a word on one that is too large."""

from __future__ import annotations

import warnings


def default_delta(num_examples: int) -> float:
    """The greatest power of ten strictly below 1 / num_examples.

    Delta is the probability with which the guarantee may fail altogether. A
    mechanism that publishes one example at random has delta = 1 / num_examples,
    so delta must lie below that; a power of ten is easy to report.

    Args:
        num_examples: Size of the training set, or a public bound on it. If the size
            is to stay secret (adjacency is add-or-remove), pass a public bound:
            delta tells the size's order of magnitude.

    Raises:
        ValueError: If it is not a positive number.

    Example:

    >>> default_delta(60_000), default_delta(100_000)
    (1e-05, 1e-06)
    """
    if not num_examples >= 1:
        raise ValueError(
            "Argument `num_examples` must be a positive integer. "
            f"Received: num_examples={num_examples}"
        )
    exponent = 1
    while 10**exponent <= num_examples:
        exponent += 1
    return float(f"1e-{exponent}")


def warn_of_large_delta(delta: float, num_examples: int) -> None:
    """Warns if the guarantee allows what no guarantee should.

    Args:
        delta: Target delta.
        num_examples: Size of the training set.
    """
    if delta * num_examples >= 1:
        warnings.warn(
            f"delta={delta:g} is not below 1 / {num_examples}: a mechanism that "
            "publishes one example at random would pass as private. Use at most "
            f"{default_delta(num_examples):g}.",
            stacklevel=3,
        )
