"""Checks that functions of `map` treat every row of a lot by itself.

An example that also changes other rows (mixup, statistics of the batch) moves the sum
by more than one bounded gradient, and so does one that takes the place of a padding
row which has got a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# How often a function is run: one that mixes at random may leave rows alone once.
_TRIALS = 4


def check_rows(functions: Sequence[Any], element_spec: Any, masked: bool) -> None:
    """Runs the functions on made-up lots, of which one row changes.

    Functions with randomness that shows on rows of zeros (added noise) cannot be
    checked for mixing; functions that fail on made-up rows are not checked at all.

    Args:
        functions: Functions of `map`, in the order in which they are applied.
        element_spec: Of the lots that the first one takes.
        masked: Whether rows of weight zero are padding.

    Raises:
        ValueError: If padding gets a weight, or a row depends on other rows.
    """
    # Also while a training step is traced: the functions must run now.
    with tf.init_scope():
        try:
            padding = _run(functions, element_spec, [])
            if masked and np.any(padding[-1] != 0):
                raise ValueError(
                    "A function passed to `map` gives padding a sample weight. Rows of "
                    "weight 0 must keep it, or epsilon does not hold: multiply the "
                    "weight instead of replacing it, or pass `sample_weight` to the "
                    "sampler."
                )
            num_rows = len(padding[-1])
            for others in ([], list(range(num_rows // 2, num_rows))):
                _check_first_row_alone_changes(functions, element_spec, others)
        except tf.errors.OpError:
            return


def _check_first_row_alone_changes(functions, element_spec, others) -> None:
    before, again = (_run(functions, element_spec, others) for _ in range(2))
    if not all(map(_equal, before, again)):
        return
    for _ in range(_TRIALS):
        after = _run(functions, element_spec, [0, *others])
        if not all(_equal(a[1:], b[1:]) for a, b in zip(before, after, strict=True)):
            raise ValueError(
                "A function passed to `map` makes rows of a lot depend on each other. "
                "Every example must be transformed by itself, without mixup or "
                "statistics of the batch, or epsilon does not hold."
            )


def _run(functions, element_spec, rows: list[int]) -> list[np.ndarray]:
    """What becomes of a lot of padding in which `rows` hold an example."""
    values = [
        _lot(spec, rows)
        for spec in tf.nest.flatten(element_spec)
        if isinstance(spec, tf.TensorSpec)  # There may be no targets.
    ]
    for function in functions:
        values = function(*values)
    # Ragged rows come as variants, which NumPy does not know.
    return [value.numpy() for value in values if value.dtype != tf.variant]


def _lot(spec: tf.TensorSpec, rows: list[int]) -> tf.Tensor:
    text = spec.dtype == tf.string
    lot = np.full(spec.shape, b"" if text else 0, object if text else None)
    lot[rows] = b"a" if text else 1
    return tf.constant(lot, spec.dtype)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)
