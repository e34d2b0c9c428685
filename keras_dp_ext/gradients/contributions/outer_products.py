"""Sums of outer products: dense layers and convolutions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.base import OuterRows, combine_rows
from keras_dp_ext.gradients.contributions.base import Contribution, RowwiseMap
from keras_dp_ext.gradients.contributions.ghost_norm import ghost_norm_squared
from keras_dp_ext.gradients.row_tensors import reshaped, scale_rows


class OuterProducts(Contribution):
    """`g_b = sum_t left[b, t] (x) right[b, t]`.

    Args:
        left: `[rows, positions, inputs]` activations.
        right: `[rows, positions, outputs]` gradients of the outputs.
        shape: The weight's shape; `inputs * outputs` elements in that order.
    """

    def __init__(
        self,
        left: tf.Tensor,
        right: tf.Tensor,
        shape: Sequence[int],
    ):
        self.shape = tuple(shape)
        self._left = tf.cast(left, tf.float32)
        self._right = tf.cast(right, tf.float32)

    @property
    def factors(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._left, self._right

    @property
    def _sizes(self) -> tuple[int | None, int, int]:
        return self._left.shape[1], self._left.shape[2], self._right.shape[2]

    def _prefers_ghost(self) -> bool:
        positions, inputs, outputs = self._sizes
        return positions is not None and self.is_ghost_cheaper(
            positions, inputs, outputs
        )

    @staticmethod
    def is_ghost_cheaper(positions: int, inputs: int, outputs: int) -> bool:
        """Gram matrices cost T^2 (I + O), twice for float64; materialising T I O."""
        return 2 * positions * (inputs + outputs) < inputs * outputs

    @property
    def checked_factors(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self.factors

    @functools.cached_property
    def _materialized(self) -> tf.Tensor:
        """`[rows, inputs, outputs]`."""
        positions, inputs, outputs = self._sizes
        is_one_large_product = self._left.shape[0] == 1 and inputs * outputs > 2**16
        if positions == 1 and not is_one_large_product:
            # Broadcasting: small matrix products of depth 1 cost several times more.
            return self._left[:, 0, :, tf.newaxis] * self._right[:, :1]
        return tf.matmul(self._left, self._right, transpose_a=True)

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        if self._sizes[0] == 1:
            return self._norm_squared_of_single(scale)
        if scale is not None:
            scale = tf.reshape(scale, self._sizes[1:])
            return tf.reduce_sum(tf.square(self._materialized / scale), axis=[1, 2])
        if self._prefers_ghost():
            return self._ghost_norm_squared()
        return tf.reduce_sum(tf.square(self._materialized), axis=[1, 2])

    def _norm_squared_of_single(self, scale: tf.Tensor | None) -> tf.Tensor:
        left, left_unit = _in_own_units(self._left[:, 0])
        right, right_unit = _in_own_units(self._right[:, 0])
        left, right = tf.square(left), tf.square(right)
        if scale is None:
            inner = tf.reduce_sum(left, axis=1) * tf.reduce_sum(right, axis=1)
        else:
            inverse = tf.math.reciprocal(tf.square(tf.reshape(scale, self._sizes[1:])))
            inner = tf.reduce_sum(tf.matmul(left, inverse) * right, axis=1)
        return inner * tf.square(left_unit * right_unit)

    def _ghost_norm_squared(self) -> tf.Tensor:
        """`|sum_t a_t (x) d_t|^2 = sum_ts (a_t . a_s) (d_t . d_s)`."""
        left, right = (tf.cast(f, tf.float64) for f in (self._left, self._right))
        left = tf.matmul(left, left, transpose_b=True)
        right = tf.matmul(right, right, transpose_b=True)
        return ghost_norm_squared(left * right)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.is_materialized:
            total = combine_rows(coefficients, self._materialized)
        else:
            inputs, outputs = self._sizes[1:]
            total = tf.matmul(
                reshaped(self._left, [-1, inputs]),
                reshaped(scale_rows(coefficients, self._right), [-1, outputs]),
                transpose_a=True,
            )
        return reshaped(total, self.shape)

    def rows(self) -> tf.Tensor:
        return reshaped(self._materialized, [-1, *self.shape])

    @property
    def outer_shape(self) -> tuple[int, int] | None:
        if self._sizes[0] != 1 or self.is_materialized:
            return None
        return self._sizes[1:]

    def outer_rows(self) -> OuterRows:
        return OuterRows(self._left[:, 0], self._right[:, 0])

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return OuterProducts(change(self._left), change(self._right), self.shape)

    @property
    def is_materialized(self) -> bool:
        return "_materialized" in self.__dict__

    def sanitized(self, zeroed: RowwiseMap) -> Contribution:
        if self.is_materialized:
            return self._built.sanitized(zeroed)
        return super().sanitized(zeroed)

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if self.is_materialized:
            return self._built.summable(zeroed)
        # The coefficients make zeros of the other factor.
        return OuterProducts(zeroed(self._left), self._right, self.shape)


def _in_own_units(factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Every row divided by its largest magnitude, and these magnitudes.

    A norm that is a product of two factors' norms is wrong where one square
    underflows and the other is huge: inputs of 1e-19 with gradients of 1e19 would
    count as zero and slip through the clipping, fifty times too large.
    """
    axes = list(range(1, factor.shape.rank))
    unit = tf.reduce_max(tf.abs(factor), axis=axes, keepdims=True)
    # Flushed denormals leave no magnitude to divide by: they count as they are.
    unit = tf.where(unit > 0.0, unit, tf.ones_like(unit))
    return factor / unit, tf.reshape(unit, [-1])
