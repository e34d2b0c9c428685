"""Checks of arguments: each raises an error that says what was expected and received."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

#: "proven" runs a form of which the claim holds, "published" the paper's letter.
GUARANTEES = ("proven", "published")

#: Least clip of an L2 norm. The squares of coordinates below 1e-19 are 0 in float32: what
#: they hide from a norm must stay far below the clip.
LEAST_CLIP = 1e-12


def check_positive(argument: str, value: Any) -> None:
    """Raises unless `value` is a finite number above zero."""
    if not (_is_finite(value) and value > 0):
        raise ValueError(
            f"Argument `{argument}` must be a positive, finite number. "
            f"Received: {argument}={value}"
        )


def check_l2_norm_clip(argument: str, value: Any) -> None:
    """Raises unless `value` can be told apart from a norm of 0 in float32."""
    check_positive(argument, value)
    if value < LEAST_CLIP:
        raise ValueError(
            f"Argument `{argument}` must be at least {LEAST_CLIP}: norms far below cannot "
            "be measured in float32, and rows would slip through unbounded. Multiply the "
            f"loss by a constant instead. Received: {argument}={value}"
        )


def check_not_negative(argument: str, value: Any) -> None:
    """Raises unless `value` is a finite number of at least zero."""
    if not (_is_finite(value) and value >= 0):
        raise ValueError(
            f"Argument `{argument}` must be finite and at least 0. "
            f"Received: {argument}={value}"
        )


def check_noise_multiplier(noise_multiplier: Any) -> None:
    """Raises unless `noise_multiplier` is a finite number of at least zero."""
    if not (_is_finite(noise_multiplier) and noise_multiplier >= 0):
        raise ValueError(
            "Argument `noise_multiplier` must be a finite number, 0 (no noise and no "
            f"privacy) or more. Received: noise_multiplier={noise_multiplier}"
        )


def check_clip_and_noise(
    l2_norm_clip: Any, noise_multiplier: Any, guarantee: str = "proven"
) -> None:
    """Raises unless these are arguments of a mechanism with Gaussian noise."""
    check_l2_norm_clip("l2_norm_clip", l2_norm_clip)
    check_noise_multiplier(noise_multiplier)
    check_one_of("guarantee", guarantee, GUARANTEES)


def check_integer(argument: str, value: Any) -> None:
    """Raises unless `value` is an integer of at least 1; 2.0 is not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(
            f"Argument `{argument}` must be a positive integer. "
            f"Received: {argument}={value}"
        )


def check_count(argument: str, value: Any, least: int = 1) -> None:
    """Raises unless `value` is a whole number of at least `least`; 6e4 is."""
    if isinstance(value, bool) or not (
        _is_finite(value) and int(value) == value and value >= least
    ):
        wanted = "a positive integer" if least == 1 else f"an integer >= {least}"
        raise ValueError(
            f"Argument `{argument}` must be {wanted}. Received: {argument}={value}"
        )


def check_in(argument: str, value: Any, interval: str) -> None:
    """Raises unless `value` lies in an interval such as "[0, 1)"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = low <= value if interval[0] == "[" else low < value
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise ValueError(
            f"Argument `{argument}` must be in {interval}. Received: {argument}={value}"
        )


def check_starts(starts: Any, argument: str, values: Any) -> tuple[int, ...]:
    """The `starts` of a table, or an error unless they ascend from 0, one for each value."""
    checked = tuple(int(start) for start in starts)
    ascending = all(a < b for a, b in itertools.pairwise(checked))
    if checked[:1] != (0,) or not ascending:
        raise ValueError(
            "Argument `starts` must be ascending and begin with 0. "
            f"Received: starts={starts}"
        )
    if len(values) != len(checked):
        raise ValueError(
            f"Argument `{argument}` must have as many entries as `starts`. "
            f"Received: {argument}={values}"
        )
    return checked


def check_one_of(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Raises unless `value` is one of the `choices`."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(
            f"Argument `{argument}` must be one of {', '.join(choices)}. "
            f"Received: {argument}={value}"
        )


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False
