"""What is done to tensors whose first axis counts rows: slices, masks, weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

#: Half of the distance between 1 and the next float32.
UNIT_ROUNDOFF = 2.0**-24

# Half of the greatest float32, about.
_HUGE = 1.7e38


def have_finite_products(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """`[rows]`: whether all sums of products of entries of two factors are finite.

    Each is at most the product of the sums of all magnitudes. (Largest magnitudes
    would do, but a maximum may forget a NaN.)
    """
    magnitudes = [
        tf.reduce_sum(tf.abs(factor), axis=list(range(1, factor.shape.rank)))
        for factor in (left, right)
    ]
    # Leaves room for the rounding of a sum.
    return magnitudes[0] * magnitudes[1] < _HUGE


def slice_rows(value: tf.Tensor, start: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    return slice_all_rows([value], start, size)[0]


def slice_all_rows(
    values: Sequence[tf.Tensor], start: tf.Tensor, size: int | tf.Tensor
) -> list[tf.Tensor]:
    """The same rows of several tensors; those of one rank share where to begin."""
    begins = {
        # A product, since packing numbers takes an op for each of them.
        rank: start * tf.constant(np.eye(1, rank, dtype=np.int32)[0])
        for rank in {value.shape.rank for value in values}
    }
    parts = []
    for value in values:
        # Where a size is -1, "the rest", XLA pads the whole tensor to twice its size.
        others = [-1 if known is None else known for known in value.shape[1:]]
        part = tf.slice(value, begins[value.shape.rank], [size, *others])
        # A size that is a tensor would hide those that are known.
        part.set_shape([None, *value.shape[1:]])
        parts.append(part)
    return parts


def zero_rows(value: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
    """Zeros in place of the rows that are not `finite`."""
    return zero_all_rows([value], finite)[0]


def zero_all_rows(values: Sequence[tf.Tensor], finite: tf.Tensor) -> list[tf.Tensor]:
    """Zeros in place of the rows that are not `finite`, in several tensors."""
    masks = {
        rank: tf.reshape(finite, [-1] + [1] * (rank - 1))
        for rank in {value.shape.rank for value in values}
    }
    zeros = {dtype: tf.zeros([], dtype) for dtype in {value.dtype for value in values}}
    return [
        tf.where(masks[value.shape.rank], value, zeros[value.dtype]) for value in values
    ]


def scale_rows(coefficients: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return value * tf.reshape(coefficients, [-1] + [1] * (value.shape.rank - 1))
