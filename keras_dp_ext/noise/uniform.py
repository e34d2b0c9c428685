"""Random words and uniforms whose tail does not end after 23 bits."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from keras_dp_ext.noise import philox

if TYPE_CHECKING:
    import tensorflow as tf

_ACTIVE = threading.local()


@contextlib.contextmanager
def drawing_from(
    source: Callable[[int, tf.Tensor], tf.Tensor], seed_words: int = 2
) -> Iterator[None]:
    """Inside it, all noises draw from `source` instead of Philox, in float64.

    Args:
        source: A function of a number of words and an `int32[seed_words]` seed that
            returns that many words, `uint32[count]`. See `noise.secure`.
        seed_words: The length of its seeds.
    """
    former = getattr(_ACTIVE, "source", None), seed_size()
    _ACTIVE.source, _ACTIVE.seed_words = source, seed_words
    try:
        yield
    finally:
        _ACTIVE.source, _ACTIVE.seed_words = former


def seed_size() -> int:
    """The length of a seed: 2, unless `drawing_from` says otherwise."""
    return getattr(_ACTIVE, "seed_words", 2)


def float_dtype() -> tf.DType:
    """In which precision noise is computed: float32, except in `drawing_from`."""
    import tensorflow as tf

    return tf.float32 if getattr(_ACTIVE, "source", None) is None else tf.float64


def random_words(shape: Sequence[int], seed: tf.Tensor, count: int) -> list[tf.Tensor]:
    """`count` independent uint32 tensors of the given shape.

    The generator is fixed to Philox, so that a seed means the same numbers with
    and without XLA, on every device.
    """
    import tensorflow as tf

    source = getattr(_ACTIVE, "source", None)
    if source is not None:
        shape = [int(size) for size in shape]
        words = source(count * math.prod(shape), seed)
        return _entries(tf.reshape(words, [count, *shape]), count)
    words = tf.random.stateless_uniform(
        tf.concat([[count], tf.cast(shape, tf.int32)], axis=0)
        if tf.is_tensor(shape)
        else [count, *shape],
        philox.unsigned(seed),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    return _entries(words, count)


def _entries(words: tf.Tensor, count: int) -> list[tf.Tensor]:
    """As `tf.unstack`, for which GPUs have no kernel of this type."""
    return [words[number] for number in range(count)]


def open_uniform(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
    """A float32 uniform on (0, 1] from two words, with 64 bits towards zero.

    TensorFlow's own float32 uniforms are multiples of 2**-23, so that a normal
    made from them never exceeds about 5.7 standard deviations. An output beyond
    such a limit proves that the data shifted it there, which is a breach that no
    (epsilon, delta) of the ideal noise covers: over 10**8 drawn coordinates it
    is no longer rare. Here the smallest value is 2**-65.
    """
    import tensorflow as tf

    fine = (tf.cast(low, float_dtype()) + 0.5) * 2.0**-32
    return (tf.cast(high, float_dtype()) + fine) * 2.0**-32


def angle_uniform(word: tf.Tensor) -> tf.Tensor:
    """A float32 uniform on [0, 1] for angles, which have no tail to resolve."""
    import tensorflow as tf

    return tf.cast(word, float_dtype()) * 2.0**-32


def random_sign(word: tf.Tensor) -> tf.Tensor:
    """+1 or -1 from the lowest bit of each word."""
    import tensorflow as tf

    return 1.0 - 2.0 * tf.cast(word & 1, float_dtype())
