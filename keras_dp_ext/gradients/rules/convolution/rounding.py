"""What a sum of gradients may be longer by than the norms that it was clipped by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.row_tensors import UNIT_ROUNDOFF


def with_rounding(
    norms_squared: tf.Tensor,
    image: tf.Tensor,
    gradient: tf.Tensor,
    filter_shape: Sequence[int],
    scale: tf.Tensor | None,
) -> tf.Tensor:
    """Squared norms that also hold for what the kernel of the whole batch adds up.

    Args:
        norms_squared: `[rows]`, of products of patches.
        image: As for `rounding_of_sum`.
        gradient: As for `rounding_of_sum`.
        filter_shape: `[*spatial, inputs, outputs]`.
        scale: By what the coordinates were divided before they were measured.
    """
    lost = rounding_of_sum(image, gradient, math.prod(filter_shape[:-2]))
    if scale is not None:
        lost /= tf.reduce_min(scale)
    return tf.square(tf.sqrt(norms_squared) + lost)


def rounding_of_sum(image: tf.Tensor, gradient: tf.Tensor, taps: int) -> tf.Tensor:
    """`[rows]`: by how much a row may be longer in a weighted sum than measured.

    The kernel for the whole batch rounds in another order than products of patches.
    Where products cancel, what is left may be mostly rounding: at most that of a sum of
    as many terms as there are positions, and of their magnitudes.

    Args:
        image: `[rows, examples, *spatial, inputs]`.
        gradient: `[rows, examples, *spatial, outputs]`.
        taps: In how many patches a pixel is.
    """
    lengths = [
        # `tf.norm` takes three times as many ops.
        tf.sqrt(tf.reduce_sum(tf.square(value), [*range(1, value.shape.rank)]))
        for value in (image, gradient)
    ]
    terms = gradient.shape[1:-1].num_elements()
    return terms * UNIT_ROUNDOFF * math.sqrt(taps) * lengths[0] * lengths[1]
