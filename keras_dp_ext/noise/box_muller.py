"""Pairs of normals by the Box-Muller transform, in one loop where XLA compiles it.

Each pair takes three words of a Philox block of its own: 64 bits for the radius, whose
tail then ends beyond 9 standard deviations, and 32 for the angle.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from keras_dp_ext.noise import philox, uniform

if TYPE_CHECKING:
    import tensorflow as tf

# A shorter draw takes less time than XLA to compile it (0.3 s, once).
_LEAST_PAIRS = 2**15

# XLA gives each thread a part of the first axis. It uses vector instructions along a last
# axis of a round length; of an axis that threads share, only if their number divides it.
_WIDTH = 512

# A longer draw is made in pieces of up to 16 MB: no two copies of a large model's noise
# need be in memory.
_MOST_ROWS = 2**12


def most_in_a_piece() -> int:
    """How many normals a draw may have that comes in one piece."""
    return 2 * _WIDTH * _MOST_ROWS


def normals_in_pieces(count: int, seed: tf.Tensor) -> list[tf.Tensor]:
    """The first `count` of `normals`, as vectors to be joined one behind the other.

    The same words: each piece goes on where the one before ends. One is drawn after the
    other, so that the first is used up before the last is there.

    Args:
        count: How many normals.
        seed: `int32[2]`.
    """
    import tensorflow as tf

    pairs = (count + 1) // 2
    rows = -(-pairs // _WIDTH)
    if rows <= _MOST_ROWS or not _can_compile():
        return [normals(pairs, seed)[:count]]
    # Pieces of one size are compiled once.
    each = -(-rows // -(-rows // _MOST_ROWS))
    number = -(-rows // each)
    philox.check_size(number * each * _WIDTH)
    pieces: list[tf.Tensor] = []
    for piece in range(number):
        with tf.control_dependencies(pieces[-1:]):
            key = tf.identity(seed)
        pieces.append(_compiled_normals(key, each, piece * each))
    pieces[-1] = pieces[-1][: count - 2 * _WIDTH * each * (number - 1)]
    return pieces


def normals(pairs: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Independent standard normals as float32, the coordinates of a point side by side.

    The same numbers, up to rounding, however they are computed.

    Args:
        pairs: How many points; a tensor where that is dynamic.
        seed: `int32[2]`.

    Returns:
        A vector of at least `2 * pairs` normals.
    """
    import tensorflow as tf

    if isinstance(pairs, int) and pairs >= _LEAST_PAIRS and _can_compile():
        return _compiled_normals(seed, -(-pairs // _WIDTH), 0)
    high, low, turn, _ = philox.blocks_by_kernel(pairs, seed)
    return tf.reshape(tf.stack(points(high, low, turn), axis=-1), [-1])


def _compiled_normals(seed: tf.Tensor, rows: int, first_row: int) -> tf.Tensor:
    import tensorflow as tf

    packed = _compiled()(seed, _word(first_row * _WIDTH), rows)
    return tf.reshape(tf.bitcast(packed, tf.float32), [-1])


def points(
    high: tf.Tensor, low: tf.Tensor, turn: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Two independent normals from three words, in the precision of `uniform`."""
    import tensorflow as tf

    angle = 2 * math.pi * uniform.angle_uniform(turn)
    radius = _radius(high, low)
    return radius * tf.cos(angle), radius * tf.sin(angle)


def _radius(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    # Not below 0, whatever way of computing it rounds the logarithm of 1.
    return tf.sqrt(tf.nn.relu(-2.0 * tf.math.log(uniform.open_uniform(high, low))))


@functools.cache
def _can_compile() -> bool:
    """Whether this TensorFlow was built with XLA for the device it uses."""
    import tensorflow as tf

    with tf.init_scope():
        try:
            tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1))
        except (tf.errors.OpError, ValueError):
            return False
    return True


@functools.cache
def _compiled() -> tf.types.experimental.PolymorphicFunction:
    import tensorflow as tf

    return tf.function(_packed_points, jit_compile=True, autograph=False)


def _packed_points(seed: tf.Tensor, first: tf.Tensor, rows: int) -> tf.Tensor:
    """`uint64[rows, _WIDTH]`: the bits of two float32, from block number `first` on.

    As one tensor, because XLA would make the words anew for each of two results.
    """
    import tensorflow as tf

    high, low, turn, _ = philox.blocks([rows, _WIDTH], seed, first)
    radius = _radius(high, low)
    cosine, sine = _cosine_and_sine(turn)
    first, second = (
        tf.cast(tf.bitcast(radius * value, tf.uint32), tf.uint64)
        for value in (cosine, sine)
    )
    return first | tf.bitwise.left_shift(second, tf.constant(32, tf.uint64))


def _cosine_and_sine(turn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """For the angle `2 pi turn / 2**32`, by polynomials exact to the last bit but one.

    XLA's own cosine takes three times as long.
    """
    import tensorflow as tf

    # The nearest multiple of a quarter turn, and the rest, within an eighth of a turn.
    quarter = tf.bitwise.right_shift(turn + _word(2**29), _word(30))
    rest = tf.bitcast(tf.bitwise.left_shift(turn, _word(2)), tf.int32)
    x = tf.cast(rest, tf.float32) * (math.pi / 2**33)
    square = x * x
    # Coefficients: Cephes (sinf.c), minimax on [-pi/4, pi/4].
    sine = -1.9515295891e-4 * square + 8.3321608736e-3
    sine = (sine * square - 1.6666654611e-1) * square * x + x
    cosine = 2.443315711809948e-5 * square - 1.388731625493765e-3
    cosine = (cosine * square + 4.166664568298827e-2) * square * square
    cosine = cosine - 0.5 * square + 1.0
    is_odd = (quarter & 1) > 0
    across, up = tf.where(is_odd, sine, cosine), tf.where(is_odd, cosine, sine)
    return (
        tf.where(((quarter + 1) & 2) > 0, -across, across),
        tf.where((quarter & 2) > 0, -up, up),
    )


def _word(value: int) -> tf.Tensor:
    import tensorflow as tf

    return tf.constant(value, tf.uint32)
