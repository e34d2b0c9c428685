"""What every form of per-example gradients can do, and the plainest of them."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.base import OuterRows, combine_rows
from keras_dp_ext.gradients.row_tensors import have_finite_products, slice_rows

RowwiseMap = Callable[[tf.Tensor], tf.Tensor]


class Contribution(abc.ABC):
    """Per-row gradients with respect to one weight, in some factored form."""

    #: Static shape of the weight.
    shape: tuple[int, ...]

    #: Whether `rows` costs next to nothing, because they exist already.
    has_rows = False

    #: Up to how many rows it makes without a loop over chunks; `None`: any number.
    rows_at_once: int | None = None

    @abc.abstractmethod
    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        """`[rows]`: sum of `(g_i / scale_i)**2`."""

    @abc.abstractmethod
    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        """`sum_b coefficients[b] * g_b`, of the weight's shape."""

    @abc.abstractmethod
    def rows(self) -> tf.Tensor:
        """All rows, materialised: `[rows, *shape]`."""

    @property
    def outer_shape(self) -> tuple[int, int] | None:
        """Where each row is a product of two vectors: how long these are."""
        return None

    def outer_rows(self) -> OuterRows:
        """All rows in factors, where `outer_shape` is known."""
        raise NotImplementedError(type(self).__name__)

    @abc.abstractmethod
    def map_factors(self, change: RowwiseMap) -> Contribution:
        """Applies `change` to every tensor whose first axis counts rows."""

    @property
    def checked_factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Two factors of whose entries all that is in the rows are sums of products.

        Whether rows are finite is read off them, if they are known.
        """
        return None

    def finite_rows(self) -> tf.Tensor:
        """`[rows]` bool: whether `rows()` is finite, found as cheaply as possible.

        Rows so large that their squared norm overflows may count as not finite.
        """
        if self.checked_factors is not None:
            return have_finite_products(*self.checked_factors)
        return self._built.finite_rows()

    @functools.cached_property
    def _built(self) -> Rows:
        """The rows, kept for the next call."""
        return Rows(self.rows(), self.shape)

    def of_at_most(self, rows: int) -> Contribution:
        """The same, where it is known that there are no more rows than these."""
        return self

    def sliced(self, start: tf.Tensor, size: int | tf.Tensor) -> Contribution:
        """Rows `start .. start + size` only."""
        return self.map_factors(lambda factor: slice_rows(factor, start, size))

    def sanitized(self, zeroed: RowwiseMap) -> Contribution:
        """The same without some rows.

        Args:
            zeroed: Puts zeros in place of these rows; NaN * 0 would be NaN.
        """
        if "_built" in self.__dict__:
            return self._built.sanitized(zeroed)
        return self.map_factors(zeroed)

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        """The same, with a `weighted_sum` that leaves out rows of coefficient 0.

        Args:
            zeroed: As for `sanitized`. `scale_rows` needs it for no tensor that it scales.
        """
        if "_built" in self.__dict__:
            return self._built.summable(zeroed)
        return self.map_factors(zeroed)


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
