"""Random words and uniforms whose tail does not end after 23 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def random_words(shape: Sequence[int], seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    """`count` independent uint32 tensors of the given shape.

    The generator is fixed to Philox, so that a seed means the same numbers with
    and without XLA, on every device.
    """
    import tensorflow as tf

    words = tf.random.stateless_uniform(
        tf.concat([[count], tf.cast(shape, tf.int32)], axis=0)
        if tf.is_tensor(shape)
        else [count, *shape],
        seed,
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    return tf.unstack(words, num=count)


def open_uniform(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
    """A float32 uniform on (0, 1] from two words, with 64 bits towards zero.

    TensorFlow's own float32 uniforms are multiples of 2**-23, so that a normal
    made from them never exceeds about 5.7 standard deviations. An output beyond
    such a limit proves that the data shifted it there, which is a breach that no
    (epsilon, delta) of the ideal noise covers: over 10**8 drawn coordinates it
    is no longer rare. Here the smallest value is 2**-65.
    """
    import tensorflow as tf

    fine = (tf.cast(low, tf.float32) + 0.5) * 2.0**-32
    return (tf.cast(high, tf.float32) + fine) * 2.0**-32


def angle_uniform(word: tf.Tensor) -> tf.Tensor:
    """A float32 uniform on [0, 1] for angles, which have no tail to resolve."""
    import tensorflow as tf

    return tf.cast(word, tf.float32) * 2.0**-32


def random_sign(word: tf.Tensor) -> tf.Tensor:
    """+1 or -1 from the lowest bit of each word."""
    import tensorflow as tf

    return 1.0 - 2.0 * tf.cast(word & 1, tf.float32)
