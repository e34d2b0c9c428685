"""Ellipsoid clip: bounds `sum_i (g_i / s_i)**2` without materialising a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.base import PerExampleGradients


def ellipsoid_clip(
    gradients: PerExampleGradients,
    l2_norm_clip: float,
    scales: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """The sum of the rows, each shrunk into an ellipsoid around zero.

    A row `g` becomes `g * min(1, l2_norm_clip / |g / s|)`. Measured in units of
    `s`, adding or removing one row changes the sum by at most `l2_norm_clip`:
    under noise of standard deviation `sigma * l2_norm_clip * s_i` this is the
    Gaussian mechanism of multiplier `sigma`, for every `s` that does not depend
    on the rows.

    Args:
        gradients: The rows.
        l2_norm_clip: The radius `C`.
        scales: For each variable the axes `s_i`, positive and finite.

    Returns:
        For each variable, the sum in float32.
    """
    norm = tf.sqrt(gradients.norm_squared(scales))
    # A row whose norm is exactly zero, infinite or not a number is dropped. Zero is
    # also what rows without a finite norm count as, and `C / 0` would let a row
    # through whose scaled norm overflowed although its gradient did not.
    coefficients = tf.where(
        (norm > 0) & tf.math.is_finite(norm),
        tf.minimum(1.0, l2_norm_clip / norm),
        0.0,
    )
    return gradients.weighted_sum(coefficients)
