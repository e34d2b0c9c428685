"""Seeds for the noise: from the operating system, never from a checkpoint."""

from __future__ import annotations

import os
import weakref

import numpy as np
import tensorflow as tf

_SOURCES: weakref.WeakSet[NoiseSource] = weakref.WeakSet()

# TensorFlow advances the counter of this generator by 256 for each number taken.
_PHILOX, _STRIDE = 1, 256


class NoiseSource:
    """Hands out a fresh `int32[2]` seed for every draw.

    The seed is made of a key and a number. Numbers are taken from a counter by one
    op, which reads and advances it under a lock: two threads that train with one
    optimizer never get the same. The key comes from the operating
    system's entropy: it does not depend on `tf.random.set_seed` or
    `keras.utils.set_random_seed`. Neither key nor counter is tracked by Keras or
    TensorFlow, so that no checkpoint brings an old stream of noise back: the same
    noise on other data would cancel out and reveal them.

    Args:
        seed: For tests only. Makes the stream reproducible, and so worthless.
        secure: Whether noise is drawn by `noise.secure`, from a key of 256 bits.
    """

    def __init__(self, seed: int | None = None, secure: bool = False):
        self._seed = seed
        self._secure = secure
        self._process = os.getpid()
        key = self._new_key()
        with tf.init_scope():
            self._key = tf.Variable(
                key,
                trainable=False,
                name="noise_key",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self._counter = tf.Variable(
                [0, 0, 0],
                dtype=tf.int64,
                trainable=False,
                name="noise_counter",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
        _SOURCES.add(self)

    def _new_key(self) -> np.ndarray:
        words = 8 if self._secure else 2
        if self._seed is None:
            return np.frombuffer(os.urandom(4 * words), np.int32).copy()
        return np.random.SeedSequence(self._seed).generate_state(words).view(np.int32)

    def seed(self) -> tf.Tensor:
        """The seed of one draw: with `secure`, just its number."""
        number = self.take_number()
        if self._secure:
            return tf.stack([number, 0])
        # After the number, so that a key that is renewed meanwhile is seen.
        with tf.control_dependencies([number]):
            key = tf.convert_to_tensor(self._key)
        # Distinct for 2**32 draws, with all 64 bits of the key; the generator scrambles
        # its seeds. (`stateless_fold_in` would keep 32 bits of the key.)
        return key + tf.stack([0, number])

    def repeatable_seed(self) -> tf.Tensor:
        """For `secure.repeatable_stream`: the number of a draw, and the key."""
        number = self.take_number()
        with tf.control_dependencies([number]):
            key = tf.convert_to_tensor(self._key)
        return tf.concat([tf.stack([number, 0]), key], axis=0)

    def key(self) -> tf.Tensor:
        """The secret key, `uint32[8]` with `secure`."""
        return tf.bitcast(tf.convert_to_tensor(self._key), tf.uint32)

    def take_number(self) -> tf.Tensor:
        """The next number; each is handed out once."""
        counter = self._counter
        if tf.distribute.get_replica_context() is None and hasattr(counter, "values"):
            # Across replicas; inside of one its own counter is taken by itself.
            counter = counter.values[0]
        state = tf.raw_ops.RngReadAndSkip(
            resource=counter.handle,
            alg=tf.constant(_PHILOX),
            delta=tf.constant(1, tf.uint64),
        )
        return tf.cast(state[0] // _STRIDE, tf.int32)

    def renew(self) -> None:
        """Starts a new stream, e.g. after a checkpoint was restored.

        The counter goes on: another thread may draw at this very moment, and a
        counter set back would reach the number of that draw again, with the same key.
        """
        with tf.init_scope():
            self._key.assign(self._new_key())

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a child of the one that made the key."""
        return self._process != os.getpid()

    def renew_after_fork(self) -> None:
        """Starts a stream of its own in a child, before it trains.

        Another thread of the parent may have drawn from the old one between the fork
        and the parent's own renewal.
        """
        self._process = os.getpid()
        self.renew()


def _leave_the_key_to_the_child() -> None:
    """A forked child goes on with the stream of noise that its parent leaves here.

    It is the parent that changes: if another of its threads was inside TensorFlow
    when it forked, TensorFlow's locks stay taken in the child for ever, and whatever
    touched TensorFlow there (in a worker that only loads data, too) would hang.
    """
    for source in list(_SOURCES):
        source.renew()


os.register_at_fork(after_in_parent=_leave_the_key_to_the_child)
