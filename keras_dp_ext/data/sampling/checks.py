"""Checks of arguments that the samplers share."""

from __future__ import annotations

from typing import Any

from keras_dp_ext._checks import check_integer


def batch_size(value: Any, num_examples: int) -> None:
    check_integer("batch_size", value)
    if value > num_examples:
        raise ValueError(
            "Argument `batch_size` must be at most the number of examples "
            f"({num_examples}). Received: batch_size={value}"
        )


def physical_batch_size(batch_size: int, accumulation_steps: Any) -> int:
    check_integer("accumulation_steps", accumulation_steps)
    if batch_size % accumulation_steps:
        raise ValueError(
            "Argument `batch_size` must be a multiple of `accumulation_steps`. "
            f"Received: batch_size={batch_size}, "
            f"accumulation_steps={accumulation_steps}"
        )
    return batch_size // accumulation_steps
