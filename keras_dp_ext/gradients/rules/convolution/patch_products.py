"""Per-row gradients of a filter as products of whole batches of patches."""

from __future__ import annotations

import functools

import tensorflow as tf

from keras_dp_ext.gradients.contributions import (
    Contribution,
    OuterProducts,
    have_finite_products,
    scale_rows,
)
from keras_dp_ext.gradients.rules.convolution.geometry import Geometry, unsplit


class PatchProducts(Contribution):
    """Outer products of image patches and output gradients.

    Patches are cut out only where the norm needs them; the weighted sum is
    TensorFlow's own kernel for the gradient of a filter. For XLA, and for devices
    that want one large product instead of many small ones.

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

    @functools.cached_property
    def _products(self) -> OuterProducts:
        patches = self._geometry.patches(unsplit(self._image))
        examples = self._image.shape[1]
        positions, taps, channels = patches.shape[1:]
        gradient = self._geometry.flat(unsplit(self._gradient))
        return OuterProducts(
            tf.reshape(patches, [-1, examples * positions, taps * channels]),
            tf.reshape(gradient, [-1, examples * positions, gradient.shape[-1]]),
            self.shape,
        )

    def norm_squared(self, scale=None):
        return self._products.norm_squared(scale)

    def weighted_sum(self, coefficients):
        if "_products" in self.__dict__ and self._products.is_materialized:
            return self._products.weighted_sum(coefficients)
        return self._geometry.filter_gradient(
            unsplit(self._image), unsplit(scale_rows(coefficients, self._gradient))
        )

    def rows(self):
        return self._products.rows()

    def finite_rows(self):
        return have_finite_products(self._image, self._gradient)

    def map_factors(self, change):
        return PatchProducts(
            change(self._image), change(self._gradient), self._geometry
        )

    def sanitized(self, finite):
        if "_products" in self.__dict__ and self._products.is_materialized:
            return self._products.sanitized(finite)
        return super().sanitized(finite)

    def summable(self, zeroed):
        if "_products" in self.__dict__ and self._products.is_materialized:
            return self._products.summable(zeroed)
        return super().summable(zeroed)
