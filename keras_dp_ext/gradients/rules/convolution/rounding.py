"""What a sum of gradients may be longer by than the norms that it was clipped by."""

from __future__ import annotations

import math

import tensorflow as tf

from keras_dp_ext.gradients.row_tensors import UNIT_ROUNDOFF


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
