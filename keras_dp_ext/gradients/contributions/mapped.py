"""Gradients behind a linear map, such as a transposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.contributions.base import Contribution, RowwiseMap


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

    @property
    def rows_at_once(self) -> int | None:  # type: ignore[override]
        return self._inner.rows_at_once

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        if self._scale_map is not None:
            return self._inner.norm_squared(
                None if scale is None else self._scale_map(scale)
            )
        return self._built.norm_squared(scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return self._sum_map(self._inner.weighted_sum(coefficients))

    @property
    def checked_factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        return None if self._scale_map is None else self._inner.checked_factors

    def finite_rows(self) -> tf.Tensor:
        if self._scale_map is not None:
            return self._inner.finite_rows()
        return super().finite_rows()

    def rows(self) -> tf.Tensor:
        return self._rows_map(self._inner.rows())

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return self._over(self._inner.map_factors(change))

    def of_at_most(self, rows: int) -> Contribution:
        return self._over(self._inner.of_at_most(rows))

    def sanitized(self, zeroed: RowwiseMap) -> Contribution:
        if "_built" in self.__dict__:
            return self._built.sanitized(zeroed)
        return self._over(self._inner.sanitized(zeroed))

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if "_built" in self.__dict__:
            return self._built.summable(zeroed)
        return self._over(self._inner.summable(zeroed))

    def _over(self, inner: Contribution) -> Mapped:
        """The same map of something else."""
        return Mapped(inner, self.shape, self._rows_map, self._sum_map, self._scale_map)
