"""Noise for `secure_noise=True`: a cryptographic stream, released on a coarse grid.

Ordinary noise has two gaps between the mechanism that is proven and the numbers
that a computer draws:

1. Philox is fast, but nobody claims that its stream cannot be predicted. Here the
   words come from ChaCha20 (RFC 8439) with a 256-bit key of the operating system.
2. Floating-point noise misses most values, and *which* sums it can produce depends
   on the value it is added to (Mironov, 2012): the last bits of `sum + noise` tell
   the sum. Here noise is drawn in float64, added in float64, and the result is
   rounded to a public grid of about 2**-20 of the noise's scale. Rounding is
   post-processing of the ideal mechanism, so that no accounting changes; a cell of
   the grid holds some 2**30 of the values that float64 can produce, so that hardly
   anything of their pattern is left (see docs/reliability.md for what remains).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

#: The grid's width is the noise's scale times 2**-GRID_BITS, up to a factor of 2.
GRID_BITS = 20

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_DOUBLE_ROUNDS = 10


def chacha20(
    key: tf.Tensor, nonce: tf.Tensor, blocks: int | tf.Tensor, counter: int = 0
) -> tf.Tensor:
    """The ChaCha20 key stream (RFC 8439, section 2.3), as TensorFlow ops.

    Args:
        key: `uint32[8]`.
        nonce: `uint32[3]`; never the same twice with one key.
        blocks: Number of blocks.
        counter: Number of the first block.

    Returns:
        `uint32[blocks, 16]`.
    """
    import tensorflow as tf

    numbers = tf.cast(tf.range(blocks), tf.uint32) + tf.constant(counter, tf.uint32)
    ones = tf.ones_like(numbers)

    def row(words: Any) -> Any:
        return tf.reshape(words, [4, 1]) * ones

    start = (
        row(tf.constant(_CONSTANTS, tf.uint32)),
        row(key[:4]),
        row(key[4:]),
        tf.concat([numbers[tf.newaxis], tf.reshape(nonce, [3, 1]) * ones], axis=0),
    )

    def double_round(
        index: int, a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor
    ) -> Any:
        a, b, c, d = _quarter_rounds(a, b, c, d)
        # The diagonals of the 4 x 4 state, turned into columns and back.
        b, c, d = _turn(b, 1), _turn(c, 2), _turn(d, 3)
        a, b, c, d = _quarter_rounds(a, b, c, d)
        return index + 1, a, _turn(b, 3), _turn(c, 2), _turn(d, 1)

    _, *mixed = tf.while_loop(
        lambda index, *_: index < _DOUBLE_ROUNDS,
        double_round,
        (tf.constant(0), *start),
        shape_invariants=(tf.TensorShape([]), *([tf.TensorShape([4, None])] * 4)),
        maximum_iterations=_DOUBLE_ROUNDS,
    )
    words = tf.concat([x + y for x, y in zip(mixed, start, strict=True)], axis=0)
    return tf.transpose(words)


def _quarter_rounds(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor) -> Any:
    """Four quarter rounds side by side (RFC 8439, section 2.1)."""
    a += b
    d = _rotate(d ^ a, 16)
    c += d
    b = _rotate(b ^ c, 12)
    a += b
    d = _rotate(d ^ a, 8)
    c += d
    return a, _rotate(b ^ c, 7), c, d


def _rotate(words: tf.Tensor, bits: int) -> tf.Tensor:
    import tensorflow as tf

    left = tf.bitwise.left_shift(words, tf.constant(bits, tf.uint32))
    return left | tf.bitwise.right_shift(words, tf.constant(32 - bits, tf.uint32))


def _turn(row: tf.Tensor, by: int) -> tf.Tensor:
    import tensorflow as tf

    return tf.concat([row[by:], row[:by]], axis=0)


def stream(key: tf.Tensor) -> Callable[[int, tf.Tensor], tf.Tensor]:
    """A source of words for `uniform.drawing_from`, one key for many seeds.

    Args:
        key: `uint32[8]`, secret. A seed must not come twice with the same key.

    Returns:
        A function of a number of words and an `int32[2]` seed.
    """
    import tensorflow as tf

    calls = iter(range(2**32))

    def words(count: int, seed: tf.Tensor) -> Any:
        # Seed and number of the call together are the nonce: a mechanism that
        # draws twice with one seed still gets two streams.
        call = tf.constant([next(calls)], tf.uint32)
        nonce = tf.concat([tf.bitcast(seed, tf.uint32), call], axis=0)
        return tf.reshape(chacha20(key, nonce, -(-count // 16)), [-1])[:count]

    return words


#: Length of a seed that holds its key: two numbers, and 256 bits in eight words.
REPEATABLE_SEED = 10


def repeatable_stream(count: int, seed: tf.Tensor) -> tf.Tensor:
    """A source that gives the same words again for the same seed.

    For noise that is drawn a second time to cancel itself (`noise.correlated`). The
    seed holds its key: another key, after a fork say, does not change what was drawn.

    Args:
        count: Number of words.
        seed: `int32[10]`, two numbers and the key. To be used for one draw, and
            repetitions of it.
    """
    import tensorflow as tf

    words = tf.bitcast(seed, tf.uint32)
    nonce = tf.concat([words[:2], tf.zeros([1], tf.uint32)], axis=0)
    return tf.reshape(chacha20(words[2:], nonce, -(-count // 16)), [-1])[:count]


def constant_words(count: int, seed: tf.Tensor) -> tf.Tensor:
    """A source of always the same word, three eighths of the way through its range.

    What a mechanism draws from it is, coordinate by coordinate, its noise's scale
    up to a sign and a constant between 0.4 and 2.5: no randomness, and nothing
    private. (Half of the way, an angle has a sine of zero.)
    """
    import tensorflow as tf

    del seed
    return tf.fill([count], tf.constant(3 * 2**29, tf.uint32))


def snap(value: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Rounds to multiples of `scale * 2**-GRID_BITS`, rounded to a power of two.

    Args:
        value: float64, sum and noise.
        scale: float64, public; coordinates where it is zero have no noise and are
            left as they are.

    Returns:
        float32.
    """
    import tensorflow as tf

    scale = tf.abs(scale)
    noisy = scale > 0
    exponent = tf.math.log(tf.where(noisy, scale, 1.0)) / tf.math.log(
        tf.constant(2.0, scale.dtype)
    )
    grid = tf.pow(tf.constant(2.0, scale.dtype), tf.math.round(exponent) - GRID_BITS)
    snapped = tf.where(noisy, tf.math.round(value / grid) * grid, value)
    return tf.cast(snapped, tf.float32)
