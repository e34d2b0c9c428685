"""The forms in which one op can hold the per-example gradients of its weight."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.base import combine_rows
from keras_dp_ext.gradients.row_tensors import (
    UNIT_ROUNDOFF,
    have_finite_products,
    scale_rows,
    slice_rows,
    zero_rows,
)

RowwiseMap = Callable[[tf.Tensor], tf.Tensor]


class Contribution(abc.ABC):
    """Per-row gradients with respect to one weight, in some factored form."""

    #: Static shape of the weight.
    shape: tuple[int, ...]

    #: Whether `rows` costs next to nothing, because they exist already.
    has_rows = False

    @abc.abstractmethod
    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        """`[rows]`: sum of `(g_i / scale_i)**2`."""

    @abc.abstractmethod
    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        """`sum_b coefficients[b] * g_b`, of the weight's shape."""

    @abc.abstractmethod
    def rows(self) -> tf.Tensor:
        """All rows, materialised: `[rows, *shape]`."""

    @abc.abstractmethod
    def map_factors(self, change: RowwiseMap) -> Contribution:
        """Applies `change` to every tensor whose first axis counts rows."""

    def finite_rows(self) -> tf.Tensor:
        """`[rows]` bool: whether `rows()` is finite, found as cheaply as possible.

        Rows so large that their squared norm overflows may count as not finite.
        """
        return self._built.finite_rows()

    @functools.cached_property
    def _built(self) -> Rows:
        """The rows, kept for the next call."""
        return Rows(self.rows(), self.shape)

    def sliced(self, start: tf.Tensor, size: int | tf.Tensor) -> Contribution:
        """Rows `start .. start + size` only."""
        return self.map_factors(lambda factor: slice_rows(factor, start, size))

    def sanitized(self, finite: tf.Tensor) -> Contribution:
        """Zeros in place of the rows that are not `finite`: NaN * 0 is NaN."""
        if "_built" in self.__dict__:
            return self._built.sanitized(finite)
        return self.map_factors(lambda factor: zero_rows(factor, finite))

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        """Of which `weighted_sum` is finite if rows that are not have coefficient 0.

        Args:
            zeroed: Puts zeros in place of rows that are not finite, as 0 * NaN is NaN.
        """
        if "_built" in self.__dict__:
            return self._built.summable(zeroed)
        return self.map_factors(zeroed)


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


def _ghost_norm_squared(products: tf.Tensor) -> tf.Tensor:
    """`|sum_t u_t|^2` from the float64 inner products `u_t . u_s`, `[rows, T, T]`.

    Terms can cancel. In float64 that costs nothing, but what a *sum* of the `u_t` is
    in float32 may be mostly rounding then: as many roundings as there are terms, of
    their magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms",
    section 3.1). It is added to the norm, so that clipping is never too weak.
    """
    exact = tf.maximum(tf.reduce_sum(products, axis=[1, 2]), 0.0)
    # Without the arguments of `tf.linalg.diag_part`: five ops less for each weight.
    magnitudes = tf.sqrt(tf.raw_ops.MatrixDiagPart(input=products))
    terms = products.shape[1]
    if terms is None:
        terms = tf.cast(tf.shape(products)[1], tf.float64)
    lost = (terms + 1) * UNIT_ROUNDOFF * tf.reduce_sum(magnitudes, axis=1)
    return tf.cast(tf.square(tf.sqrt(exact) + lost), tf.float32)


class Rows(Contribution):
    """Gradients that exist already: `[rows, *shape]`. For small weights."""

    has_rows = True

    def __init__(self, rows: tf.Tensor, shape: Sequence[int]):
        self.shape = tuple(shape)
        self._rows = tf.cast(rows, tf.float32)

    def finite_rows(self) -> tf.Tensor:
        # 0 * x is 0 for finite x and NaN otherwise: one pass, one reduction.
        axes = list(range(1, self._rows.shape.rank))
        return tf.equal(tf.reduce_sum(0.0 * self._rows, axis=axes), 0.0)

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        rows = self._rows if scale is None else self._rows / scale
        return tf.reduce_sum(tf.square(rows), axis=list(range(1, rows.shape.rank)))

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return combine_rows(coefficients, self._rows)

    def rows(self) -> tf.Tensor:
        return self._rows

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return Rows(change(self._rows), self.shape)


class OuterProducts(Contribution):
    """`g_b = sum_t left[b, t] (x) right[b, t]`: dense layers and convolutions.

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

    def finite_rows(self) -> tf.Tensor:
        return have_finite_products(self._left, self._right)

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
        return _ghost_norm_squared(left * right)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self.is_materialized:
            total = combine_rows(coefficients, self._materialized)
        else:
            inputs, outputs = self._sizes[1:]
            total = tf.matmul(
                tf.reshape(self._left, [-1, inputs]),
                tf.reshape(scale_rows(coefficients, self._right), [-1, outputs]),
                transpose_a=True,
            )
        return tf.reshape(total, self.shape)

    def rows(self) -> tf.Tensor:
        return tf.reshape(self._materialized, [-1, *self.shape])

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return OuterProducts(change(self._left), change(self._right), self.shape)

    @property
    def is_materialized(self) -> bool:
        return "_materialized" in self.__dict__

    def sanitized(self, finite: tf.Tensor) -> Contribution:
        if self.is_materialized:
            return self._built.sanitized(finite)
        return super().sanitized(finite)

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if self.is_materialized:
            return self._built.summable(zeroed)
        return super().summable(zeroed)


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
        return _ghost_norm_squared(tf.where(same, inner, tf.zeros([], inner.dtype)))

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.reshape(scale_rows(coefficients, self._gradients), [-1, self.shape[1]]),
            tf.reshape(self._indices, [-1]),
            self.shape[0],
        )

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


class Mapped(Contribution):
    """A linear map, the same for every row, applied to another contribution.

    Args:
        inner: Gradients with respect to what the map's adjoint starts from.
        shape: Shape of the result for one row.
        rows_map: `[n, *inner.shape] -> [n, *shape]`.
        sum_map: The same for a single sum; `inner.shape -> shape`.
        scale_map: From a scale of the result to one of `inner`, if the map is a
            rearrangement (then norms are those of `inner`); otherwise `None`.
    """

    def __init__(
        self,
        inner: Contribution,
        shape: Sequence[int],
        rows_map: Callable[[tf.Tensor], tf.Tensor],
        sum_map: Callable[[tf.Tensor], tf.Tensor],
        scale_map: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ):
        self.shape = tuple(shape)
        self._inner = inner
        self._rows_map = rows_map
        self._sum_map = sum_map
        self._scale_map = scale_map

    @property
    def has_rows(self) -> bool:  # type: ignore[override]
        return self._scale_map is not None and self._inner.has_rows

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        if self._scale_map is not None:
            return self._inner.norm_squared(
                None if scale is None else self._scale_map(scale)
            )
        return self._built.norm_squared(scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return self._sum_map(self._inner.weighted_sum(coefficients))

    def finite_rows(self) -> tf.Tensor:
        if self._scale_map is not None:
            return self._inner.finite_rows()
        return super().finite_rows()

    def rows(self) -> tf.Tensor:
        return self._rows_map(self._inner.rows())

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return self._over(self._inner.map_factors(change))

    def sanitized(self, finite: tf.Tensor) -> Contribution:
        if "_built" in self.__dict__:
            return self._built.sanitized(finite)
        return self._over(self._inner.sanitized(finite))

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if "_built" in self.__dict__:
            return self._built.summable(zeroed)
        return self._over(self._inner.summable(zeroed))

    def _over(self, inner: Contribution) -> Mapped:
        """The same map of something else."""
        return Mapped(inner, self.shape, self._rows_map, self._sum_map, self._scale_map)


class Total(Contribution):
    """The sum of several contributions to one variable (shared weights)."""

    def __init__(self, parts: Sequence[Contribution]):
        self.shape = parts[0].shape
        self._parts = list(parts)

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        return self._built.norm_squared(scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return tf.add_n([part.weighted_sum(coefficients) for part in self._parts])

    def rows(self) -> tf.Tensor:
        return tf.add_n([part.rows() for part in self._parts])

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return Total([part.map_factors(change) for part in self._parts])


def total(parts: Sequence[Contribution]) -> Contribution:
    """One contribution for all uses of a weight, merged where forms allow it.

    Outer products of the same shape join as further positions of one sum, and
    look-ups as further entries, so that shared weights stay factored.
    """
    if len(parts) == 1:
        return parts[0]
    if all(type(part) is OuterProducts for part in parts):
        factors = [part.factors for part in parts]  # type: ignore[attr-defined]
        if len({left.shape[2] for left, _ in factors}) == 1:
            return OuterProducts(
                tf.concat([left for left, _ in factors], axis=1),
                tf.concat([right for _, right in factors], axis=1),
                parts[0].shape,
            )
    return Total(parts)
