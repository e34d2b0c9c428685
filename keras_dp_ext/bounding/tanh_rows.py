"""Tanh filter: squashes every coordinate, then (unless as printed) clips the row."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.base import RowMap, WeightedRows

# From about 9 on, tangents are 1 in float32.
_SATURATED = 16.0


def tanh_filter(
    gradient: tf.Tensor,
    output_range: float = 1.0,
    active_range: float = 1.0,
    slope: float = 1.0,
) -> tf.Tensor:
    """`output_range * tanh(slope * gradient / active_range)`, element-wise.

    Args:
        gradient: Any float tensor.
        output_range: The paper's `c`; every output is in `(-c, c)`.
        active_range: The paper's `k`; inputs up to about `k` are not saturated.
        slope: 1 for the hyperbolic tangent. The paper's Eq. 4 prints
            `(1 - exp(-x)) / (1 + exp(-x))`, which is `tanh(x / 2)`: 0.5.

    Returns:
        A tensor of the same shape.

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021), Eq. 4 and section IV.
    """
    return output_range * tangents(gradient, slope / active_range)


def tangents(gradient: tf.Tensor, factor: float) -> tf.Tensor:
    """`tanh(factor * gradient)`, a number for every finite gradient.

    A gradient is a product itself, and TensorFlow computes `factor * (0 * huge)` as
    `0 * (factor * huge)`, which is not a number. What lies beyond saturation is cut off
    first, so that the two products stay apart.

    Args:
        gradient: Any float tensor.
        factor: At most 1e30.
    """
    if factor == 1:
        return tf.tanh(gradient)
    if factor > 1:
        end = _SATURATED / factor
        gradient = tf.clip_by_value(gradient, -end, end)
    return tf.tanh(factor * gradient)


def tanh_rows(
    output_range: float,
    active_range: float,
    slope: float,
    l2_norm_clip: float | None,
) -> RowMap:
    """A row map that filters a chunk of per-example gradients.

    Args:
        output_range: See `tanh_filter`.
        active_range: See `tanh_filter`.
        slope: See `tanh_filter`.
        l2_norm_clip: Rows are scaled down to this L2 norm, taken over all
            variables, after the filter: this is the sensitivity. `None` leaves
            them as they are, with a sensitivity of `output_range * sqrt(n)`.

    Returns:
        A function of a list of `[chunk, *shape]` tensors.
    """

    def filter_rows(gradients: list[tf.Tensor]) -> WeightedRows:
        # Scaling is left to the sum: a pass over all per-example gradients is what
        # this bound costs.
        factor = slope / active_range
        filtered = [tangents(row, factor) for row in gradients]
        if l2_norm_clip is None:
            rows = tf.shape(filtered[0])[0]
            return WeightedRows(filtered, tf.fill([rows], float(output_range)))
        norm = output_range * row_norms(filtered)
        shrink = output_range * tf.minimum(1.0, l2_norm_clip / norm)
        return WeightedRows(filtered, shrink)

    return filter_rows


def row_norms(rows: Sequence[tf.Tensor]) -> tf.Tensor:
    """`[chunk]`: the L2 norm of every row, over all variables together."""
    if rows[0].shape[0] == 1:
        # Needs no copy of the row, which may be millions of numbers long.
        halves = tf.add_n([tf.nn.l2_loss(row) for row in rows])
        return tf.sqrt(2.0 * halves)[tf.newaxis]
    squares = [
        tf.reduce_sum(tf.square(row), axis=list(range(1, row.shape.rank)))
        for row in rows
    ]
    return tf.sqrt(tf.add_n(squares))
