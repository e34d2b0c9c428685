"""Philox 4x32-10 as TensorFlow ops, which XLA fuses with what is made of the words.

The words are those of TensorFlow's own kernel, which computes them one by one and writes
them to memory. Salmon et al. (2011), "Parallel Random Numbers: As Easy as 1, 2, 3": for
each 64-bit key a bijection of 128-bit counters, so that nothing repeats unless key and
counter do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def check_size(size: int) -> None:
    """Refuses a draw whose counter would start again: the same noise twice."""
    if size >= 2**31:
        raise ValueError(
            "Argument `shape` must have fewer than 2**31 coordinates. "
            f"Received: {size} coordinates"
        )


def blocks(
    shape: Sequence[int], seed: tf.Tensor, first: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Four independent words for each coordinate, in ops that XLA can fuse.

    Args:
        shape: Static shape, of fewer than 2**31 coordinates.
        seed: `int32[2]`.
        first: `uint32`, the number of the first block; 0 by default. Blocks of one seed
            must end below number 2**31 (`check_size`).

    Returns:
        Four `uint32` tensors of this shape.
    """
    import tensorflow as tf

    size = math.prod(shape)
    check_size(size)
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=unsigned(seed))
    # TensorFlow's counters start at 64 zeros, to which the number of the block is added,
    # and 64 bits that belong to the seed.
    number = tf.reshape(tf.cast(tf.range(size), tf.uint32), shape)
    if first is not None:
        number += first
    of_seed = [tf.fill(shape, half) for half in _halves(counter[1])]
    return encrypt([number, tf.zeros_like(number), *of_seed], _halves(key[0]))


def blocks_by_kernel(count: int | tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
    """The same words for `[count]` coordinates, by TensorFlow's kernel."""
    import tensorflow as tf

    words = tf.random.stateless_uniform(
        tf.stack([count, 4]),
        unsigned(seed),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    # Not by `tf.unstack`, for which GPUs have no kernel of this type.
    return [words[:, lane] for lane in range(4)]


def unsigned(seed: tf.Tensor) -> tf.Tensor:
    """An `int32` seed as numbers from 0 to 2**32 - 1.

    What a negative number means differs between XLA and TensorFlow's other kernels.
    """
    import tensorflow as tf

    return tf.cast(tf.bitcast(seed, tf.uint32), tf.int64)


def encrypt(counter: Sequence[tf.Tensor], key: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The bijection itself: from four words to four, `uint32`, least significant first."""
    import tensorflow as tf

    x, (first, second) = list(counter), key
    for _ in range(_ROUNDS):
        low, high = _halves(_product(x[0], _MULTIPLIERS[0]))
        other_low, other_high = _halves(_product(x[2], _MULTIPLIERS[1]))
        x = [other_high ^ x[1] ^ first, other_low, high ^ x[3] ^ second, low]
        first += tf.constant(_KEY_STEPS[0], tf.uint32)
        second += tf.constant(_KEY_STEPS[1], tf.uint32)
    return x


def _product(words: tf.Tensor, factor: int) -> tf.Tensor:
    import tensorflow as tf

    return tf.cast(words, tf.uint64) * tf.constant(factor, tf.uint64)


def _halves(words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The lower and the upper 32 bits."""
    import tensorflow as tf

    upper = tf.bitwise.right_shift(words, tf.constant(32, tf.uint64))
    return tf.cast(words, tf.uint32), tf.cast(upper, tf.uint32)
