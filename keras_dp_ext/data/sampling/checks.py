"""Checks of arguments that the samplers share."""

from __future__ import annotations

import numbers
from typing import Any


def positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(
            f"Argument `{name}` must be a positive integer. Received: {name}={value}"
        )


def batch_size(value: Any, num_examples: int) -> None:
    positive_integer("batch_size", value)
    if value > num_examples:
        raise ValueError(
            "Argument `batch_size` must be at most the number of examples "
            f"({num_examples}). Received: batch_size={value}"
        )


def physical_batch_size(batch_size: int, accumulation_steps: Any) -> int:
    positive_integer("accumulation_steps", accumulation_steps)
    if batch_size % accumulation_steps:
        raise ValueError(
            "Argument `batch_size` must be a multiple of `accumulation_steps`. "
            f"Received: batch_size={batch_size}, "
            f"accumulation_steps={accumulation_steps}"
        )
    return batch_size // accumulation_steps
