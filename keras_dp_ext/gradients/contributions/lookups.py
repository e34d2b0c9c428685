"""Gradients of tables: embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.contributions.base import Contribution, RowwiseMap
from keras_dp_ext.gradients.contributions.ghost_norm import ghost_norm_squared
from keras_dp_ext.gradients.row_tensors import scale_rows


class Lookups(Contribution):
    """Gradients of a table of which each row of data reads a few entries.

    Never builds `[rows, vocabulary, width]`, except in `rows`.

    Args:
        indices: `[rows, positions]` integers.
        gradients: `[rows, positions, width]`.
        shape: `(vocabulary, width)`.
    """

    def __init__(self, indices: Any, gradients: Any, shape: Sequence[int]):
        self.shape = tuple(shape)
        self._indices = indices
        self._gradients = tf.cast(gradients, tf.float32)

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        gradients = self._gradients
        if scale is not None:
            gradients = gradients / tf.gather(scale, self._indices)
        gradients = tf.cast(gradients, tf.float64)
        same = tf.equal(self._indices[:, :, None], self._indices[:, None, :])
        inner = tf.matmul(gradients, gradients, transpose_b=True)
        return ghost_norm_squared(tf.where(same, inner, tf.zeros([], inner.dtype)))

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.reshape(scale_rows(coefficients, self._gradients), [-1, self.shape[1]]),
            tf.reshape(self._indices, [-1]),
            self.shape[0],
        )

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        return self  # Coefficients of 0 make zeros of any gradients.

    def finite_rows(self) -> tf.Tensor:
        # A row of the table is a sum of gradients: finite if their norm is.
        return tf.math.is_finite(self.norm_squared())

    def rows(self) -> tf.Tensor:
        rows = tf.shape(self._indices)[0]
        offsets = tf.range(tf.cast(rows, self._indices.dtype)) * self.shape[0]
        # XLA does not check indices: one beyond the table would be another row's.
        inside = (self._indices >= 0) & (self._indices < self.shape[0])
        places = tf.where(inside, self._indices + offsets[:, None], -1)
        flat = tf.math.unsorted_segment_sum(
            tf.reshape(self._gradients, [-1, self.shape[1]]),
            tf.reshape(places, [-1]),
            (self._indices.shape[0] or rows) * self.shape[0],
        )
        return tf.reshape(flat, [-1, *self.shape])

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return Lookups(change(self._indices), change(self._gradients), self.shape)
