"""Per-row gradients of a filter for accelerators and XLA: few, large products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.gradients.chunks import chunk_bytes, rows_per_chunk
from keras_dp_ext.gradients.contributions import Contribution, OuterProducts, Rows
from keras_dp_ext.gradients.row_tensors import (
    scale_rows,
    slice_rows,
)
from keras_dp_ext.gradients.rules.convolution.geometry import Geometry, unsplit
from keras_dp_ext.gradients.rules.convolution.rounding import with_rounding
from keras_dp_ext.gradients.rules.device import integer_dtype

if TYPE_CHECKING:
    from keras_dp_ext.gradients.contributions import RowwiseMap

# Accelerators want larger chunks than the cache of a processor.
_CHUNKS_AT_ONCE = 8


class PatchProducts(Contribution):
    """Outer products of image patches and output gradients.

    Patches are cut out only where the norm needs them, for so many rows at a time
    that they take no more memory than image and gradient of the whole batch, which
    are there anyway. The rows are kept if they are smaller than what they are made of;
    otherwise the weighted sum is TensorFlow's own kernel for the gradient of a filter.

    Args:
        image: `[rows, examples, *spatial, inputs]`.
        gradient: `[rows, examples, *spatial, outputs]`.
        geometry: Of the convolution that maps one to the other.
    """

    def __init__(self, image: tf.Tensor, gradient: tf.Tensor, geometry: Geometry):
        self.shape = tuple(geometry.filter_shape)
        self._image = tf.cast(image, tf.float32)
        self._gradient = tf.cast(gradient, tf.float32)
        self._geometry = geometry
        self._kept: Rows | None = None

    # How many rows at a time --------------------------------------------------

    @property
    def _given_elements(self) -> int:
        """Elements of one row's image and gradient."""
        return sum(
            value.shape[1:].num_elements() for value in (self._image, self._gradient)
        )

    def _made_elements(self, ghost: bool) -> int:
        """Elements made of one row: patches, and their products or Gram matrices."""
        examples = self._image.shape[1]
        patches = examples * self._geometry.patch_elements(self._gradient)
        if ghost:
            return 3 * patches  # Once more in float64.
        return patches + math.prod(self.shape)

    @property
    def _prefers_ghost(self) -> bool:
        positions = self._image.shape[1] * self._geometry.positions(self._gradient)
        return OuterProducts.is_ghost_cheaper(
            positions, math.prod(self.shape[:-1]), self.shape[-1]
        )

    def _chunks(self, ghost: bool) -> int | tf.Tensor:
        """Into how many chunks the rows are cut."""
        made = self._made_elements(ghost)
        most = -(-made // self._given_elements)
        enough = rows_per_chunk(made, _CHUNKS_AT_ONCE * chunk_bytes())
        rows = self._image.shape[0]
        if most == 1:
            return 1
        if rows is not None:
            return max(1, min(most, -(-rows // enough)))
        return tf.maximum(1, tf.minimum(most, -(-tf.shape(self._image)[0] // enough)))

    def _in_chunks(
        self,
        function: Callable[[OuterProducts], list[tf.Tensor]],
        shapes: Sequence[Sequence[int]],
        chunks: int | tf.Tensor,
    ) -> list[tf.Tensor]:
        """`[rows, *shape]` for each tensor that `function` makes of a chunk.

        Chunks have one size, as XLA wants it; the last one starts early enough to end
        with the batch, and does some rows again.
        """
        if isinstance(chunks, int) and chunks == 1:
            return function(self._products(self._image, self._gradient))
        known = self._image.shape[0]
        rows = tf.shape(self._image)[0] if known is None else tf.constant(known)
        chunk = -(-rows // chunks) if known is None else -(-known // chunks)
        integers = integer_dtype()

        def body(done: Any, results: Any) -> Any:
            start = tf.minimum(done, rows - chunk)
            parts = function(
                self._products(
                    slice_rows(self._image, start, chunk),
                    slice_rows(self._gradient, start, chunk),
                )
            )
            places = tf.cast(start, integers) + tf.range(tf.cast(chunk, integers))
            return done + chunk, [
                tf.tensor_scatter_nd_update(result, places[:, tf.newaxis], part)
                for result, part in zip(results, parts, strict=True)
            ]

        _, results = tf.while_loop(
            lambda done, results: done < rows,
            body,
            (tf.constant(0), [tf.zeros([known or rows, *shape]) for shape in shapes]),
            shape_invariants=(
                tf.TensorShape([]),
                [tf.TensorShape([known, *shape]) for shape in shapes],
            ),
            parallel_iterations=1,
        )
        return list(results)

    def _products(self, image: tf.Tensor, gradient: tf.Tensor) -> OuterProducts:
        patches = self._geometry.patches(unsplit(image))
        examples = image.shape[1]
        positions, taps, channels = patches.shape[1:]
        gradient = self._geometry.flat(unsplit(gradient))
        return OuterProducts(
            tf.reshape(patches, [-1, examples * positions, taps * channels]),
            tf.reshape(gradient, [-1, examples * positions, gradient.shape[-1]]),
            self.shape,
        )

    # Gradients ----------------------------------------------------------------

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        if self._kept is not None:
            return self._kept.norm_squared(scale)
        ghost = scale is None and self._prefers_ghost
        chunks = self._chunks(ghost)
        is_one_chunk = isinstance(chunks, int) and chunks == 1
        is_small = math.prod(self.shape) <= self._given_elements
        if not ghost and (is_one_chunk or is_small):
            norms, rows = self._in_chunks(
                lambda part: [part.norm_squared(scale), part.rows()],
                [[], self.shape],
                chunks,
            )
            self._kept = Rows(rows, self.shape)
            return norms
        (norms,) = self._in_chunks(
            lambda part: [part.norm_squared(scale)], [[]], chunks
        )
        if ghost:
            return norms  # They account for rounding themselves.
        return with_rounding(norms, self._image, self._gradient, self.shape, scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        if self._kept is not None:
            return self._kept.weighted_sum(coefficients)
        return self._geometry.filter_gradient(
            unsplit(self._image), unsplit(scale_rows(coefficients, self._gradient))
        )

    def rows(self) -> tf.Tensor:
        if self._kept is not None:
            return self._kept.rows()
        return self._products(self._image, self._gradient).rows()

    @property
    def checked_factors(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._image, self._gradient

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return PatchProducts(
            change(self._image), change(self._gradient), self._geometry
        )

    def sanitized(self, zeroed: RowwiseMap) -> Contribution:
        if self._kept is not None:
            return self._kept.sanitized(zeroed)
        return super().sanitized(zeroed)

    def summable(self, zeroed: RowwiseMap) -> Contribution:
        if self._kept is not None:
            return self._kept.summable(zeroed)
        # The coefficients make zeros of the other factor.
        return PatchProducts(zeroed(self._image), self._gradient, self._geometry)
