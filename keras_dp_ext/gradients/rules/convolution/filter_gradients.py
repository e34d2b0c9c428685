"""Per-row gradients of a filter on a CPU, a cache full of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.gradients.chunks import (
    DEFAULT_CHUNK_BYTES,
    chunk_bytes,
    map_chunks,
    rows_per_chunk,
)
from keras_dp_ext.gradients.contributions import Contribution, Rows
from keras_dp_ext.gradients.row_tensors import (
    scale_rows,
    slice_all_rows,
    zero_rows,
)
from keras_dp_ext.gradients.rules.convolution.geometry import unsplit
from keras_dp_ext.gradients.rules.convolution.rounding import with_rounding

if TYPE_CHECKING:
    from keras_dp_ext.gradients.contributions import RowwiseMap

# Beyond, writing and reading per-row gradients costs more than TensorFlow's kernel for
# the gradient of the whole batch (measured: break-even at 40,000 to 70,000).
_MOST_KEPT_ELEMENTS = 40_000


def kept_elements() -> int:
    """Up to how many elements a filter's per-row gradients are kept for the sum.

    Fewer where chunks are smaller than by default: they are kept for the whole batch.
    """
    share = min(1.0, chunk_bytes() / DEFAULT_CHUNK_BYTES)
    return int(share * _MOST_KEPT_ELEMENTS)


class FilterGradients(Contribution):
    """Per-row gradients of a filter on a CPU, a cache full of rows at a time.

    Patches of a whole batch do not fit into any cache, and cutting them takes longer
    than multiplying them.

    Args:
        image: `[rows, examples, *spatial, inputs]`.
        gradient: `[rows, examples, *spatial, outputs]`.
        shape: Of the filter.
        patch_elements: How many elements the patches of one row have; `None` takes
            one row at a time.
        products: From some rows of `image` and `gradient` to their contribution.
        kernel: From `[n, *spatial, inputs]` and `[n, *spatial, outputs]` to the
            gradient of the filter, summed over `n`; `None` if only rows are asked for.
        at_most: How many rows there are at most; `None` if it is not known.
    """

    def __init__(
        self,
        image: tf.Tensor,
        gradient: tf.Tensor,
        shape: Sequence[int],
        patch_elements: int | None,
        products: Callable[[tf.Tensor, tf.Tensor], Contribution],
        kernel: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None,
        at_most: int | None = None,
    ):
        self.shape = tuple(shape)
        self._image = tf.cast(image, tf.float32)
        self._gradient = tf.cast(gradient, tf.float32)
        self._patch_elements = patch_elements
        self._products = products
        self._kernel = kernel
        self._at_most = at_most
        self._kept: Rows | None = None
        self._kept_finite: tf.Tensor | None = None

    def _for_each_chunk(self, function: Any, *shapes: Any) -> Any:
        """A tensor `[rows, *shape]` for each tensor that `function` makes of a chunk."""
        rows = self._image.shape[0]
        most = self.rows_at_once
        limit = self._at_most if rows is None else rows
        if limit is not None and limit <= most:
            return function(self._products(self._image, self._gradient))
        return map_chunks(
            lambda start, size: function(
                self._products(
                    *slice_all_rows([self._image, self._gradient], start, size)
                )
            ),
            tf.shape(self._image)[0] if rows is None else rows,
            most,
            shapes,
        )

    @property
    def rows_at_once(self) -> int:  # type: ignore[override]
        """How many rows of patches and products fit into a chunk."""
        if self._patch_elements is None:
            return 1
        return rows_per_chunk(self._patch_elements + math.prod(self.shape))

    def _keep(self, scale: tf.Tensor | None) -> tf.Tensor:
        """Keeps all rows, zeros in place of those that are not finite.

        Norms are made while a chunk is in cache: a later pass over all rows would
        cost as much as the products.

        Returns:
            `[rows]`: their squared norms.
        """

        def rows_and_norms(part: Any) -> Any:
            # Built before either branch: what one branch builds the other can't use.
            part_rows = part.rows()
            norms = part.norm_squared(scale)
            finite = tf.math.is_finite(norms)
            finite_rows = tf.cond(
                tf.reduce_all(finite),
                lambda: part_rows,
                lambda: zero_rows(part_rows, finite),
            )
            return [finite_rows, norms]

        rows, norms = self._for_each_chunk(rows_and_norms, self.shape, [])
        self._kept = Rows(rows, self.shape)
        self._kept_finite = tf.math.is_finite(norms)
        return norms

    @property
    def _keeps_rows(self) -> bool:
        return math.prod(self.shape) <= kept_elements()

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        if self._kept is not None:
            norms = self._kept.norm_squared(scale)
            return tf.where(self._kept_finite, norms, float("nan"))
        if self._keeps_rows:
            return self._keep(scale)
        (norms,) = self._for_each_chunk(lambda part: [part.norm_squared(scale)], [])
        return with_rounding(norms, self._image, self._gradient, self.shape, scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self._kept is not None:
            return self._kept.weighted_sum(coefficients)
        return self._kernel(
            unsplit(self._image), unsplit(scale_rows(coefficients, self._gradient))
        )

    def rows(self) -> tf.Tensor:
        if self._kept is not None:
            return self._kept.rows()
        (rows,) = self._for_each_chunk(lambda part: [part.rows()], self.shape)
        return rows

    @property
    def checked_factors(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._image, self._gradient

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return self._of(change(self._image), change(self._gradient))

    def _of(self, image: tf.Tensor, gradient: tf.Tensor) -> FilterGradients:
        """The same of other factors."""
        return FilterGradients(
            image,
            gradient,
            self.shape,
            self._patch_elements,
            self._products,
            self._kernel,
            self._at_most,
        )

    def of_at_most(self, rows: int) -> Contribution:
        changed = self._of(self._image, self._gradient)
        changed._at_most = rows
        return changed

    def sanitized(self, zeroed: RowwiseMap) -> Contribution:
        if self._kept is not None:
            return self._kept.sanitized(zeroed)
        return super().sanitized(zeroed)

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if self._kept is not None:
            return self._kept  # Which is finite.
        # The coefficients make zeros of the other factor.
        return self._of(zeroed(self._image), self._gradient)
