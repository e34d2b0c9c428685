"""Clipping of every row to an L2 norm: the bound of DP-SGD."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.gradients.base import PerExampleGradients


def l2_clipped_sum(
    gradients: PerExampleGradients, l2_norm_clip: float
) -> list[tf.Tensor]:
    """`sum_b g_b * min(1, C / |g_b|)`, with `|.|` over all variables together.

    Uses norms and a weighted sum only: no per-example gradient is built where the
    engine knows a cheaper way.
    """
    norm = tf.sqrt(gradients.norm_squared())
    # A row of norm 0 keeps its zeros: C / 0 is infinite, the minimum is 1.
    coefficients = tf.minimum(1.0, l2_norm_clip / norm)
    return gradients.weighted_sum(coefficients)
