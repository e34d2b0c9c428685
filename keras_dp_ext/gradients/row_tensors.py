"""What is done to tensors whose first axis counts rows: slices, masks, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals

#: Half of the distance between 1 and the next float32.
UNIT_ROUNDOFF = 2.0**-24

# Half of the greatest float32, about.
_HUGE = 1.7e38


def have_finite_products(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """`[rows]`: whether all sums of products of entries of two factors are finite.

    Each is at most the product of the sums of all magnitudes. (Largest magnitudes
    would do, but a maximum may forget a NaN.)
    """
    return have_all_finite_products([(left, right)])


def have_all_finite_products(
    pairs: Sequence[tuple[tf.Tensor, tf.Tensor]],
) -> tf.Tensor:
    """`[rows]`: whether that is so of several pairs of factors."""
    factors = {id(factor): factor for pair in pairs for factor in pair}
    magnitudes = {
        key: tf.reduce_sum(tf.abs(factor), axis=list(range(1, factor.shape.rank)))
        for key, factor in factors.items()
    }
    lefts, rights = (
        [magnitudes[id(factor)] for factor in side] for side in zip(*pairs, strict=True)
    )
    # Leaves room for the rounding of a sum.
    if len(pairs) == 1:
        return lefts[0] * rights[0] < _HUGE
    # Side by side: two ops for all of a deep model's layers, not for each.
    return tf.reduce_all(tf.stack(lefts) * tf.stack(rights) < _HUGE, axis=0)


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
    """Each row times its coefficient; zeros where that is 0, even of NaN."""
    shape = [-1] + [1] * (value.shape.rank - 1)
    return tf.math.multiply_no_nan(value, tf.reshape(coefficients, shape))


def reshaped(value: tf.Tensor, shape: Sequence[Any]) -> tf.Tensor:
    """`tf.reshape` of a factor: no op where nothing changes, one in place of several.

    Cutting a batch into rows and putting them together again would otherwise be a
    quarter of the ops that a private step adds to a model.

    Args:
        value: No tensor that the probe replaces: what it was reshaped from is taken.
        shape: Sizes, of which one may be -1, or tensors.
    """
    if tf_internals.is_symbolic(value):
        while value.op.type == "Reshape" and value.op.inputs[0].shape.rank is not None:
            value = value.op.inputs[0]
    if _is_of_shape(value, shape):
        return value
    return tf.reshape(value, shape)


def _is_of_shape(value: tf.Tensor, shape: Sequence[Any]) -> bool:
    """Whether all sizes are equal, but for one that follows from the others."""
    known = value.shape.as_list()
    if len(known) != len(shape) or not all(isinstance(size, int) for size in shape):
        return False
    free = [n for n, size in enumerate(shape) if size == -1]
    pairs = zip(known, shape, strict=True)
    others = [pair for n, pair in enumerate(pairs) if n not in free]
    return len(free) <= 1 and all(a == b and a for a, b in others)
