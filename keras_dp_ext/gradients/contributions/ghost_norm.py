"""Norms of sums that are never built, from the inner products of their terms."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.gradients.row_tensors import UNIT_ROUNDOFF


def ghost_norm_squared(products: tf.Tensor) -> tf.Tensor:
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
