"""Records every release of one optimizer, and can repeat those of another run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.audit.correlated_tape import deviations
from keras_dp_ext.mechanisms.model_noise import standard_normals
from keras_dp_ext.noise import secure


class ReleaseTape:
    """Sits between noise and refinement of an optimizer, in the traced step.

    It writes down what the optimizer was about to release. If it follows the tape of
    another run, the optimizer goes on with what was released *there*: two runs on
    neighbouring data then have the same past at every release, which is how
    adaptive composition compares them, and all that follows from releases alone is
    the same in both.

    Variables, not Python, so that it works under XLA and in any `tf.function`.

    Args:
        optimizer: A private optimizer that is built.
        capacity: The most releases it can hold.
        follows: The tape to repeat, or `None`.
    """

    def __init__(self, optimizer: Any, capacity: int, follows: ReleaseTape | None):
        self.optimizer = optimizer
        self.variables: list[keras.Variable] = []
        self._capacity = capacity
        self._size = sum(v.shape.num_elements() for v in _values(optimizer))
        self._size += sum(map(math.prod, optimizer.mechanism.statistics()))
        self._drawn: tuple[tf.Tensor, tf.Tensor] | None = None
        self._drawn_from: tuple[tf.Tensor, tf.Tensor] | None = None
        with tf.init_scope():
            self._count = self._variable([], "int32")
            self._sums, self._noise, self._deviations = (
                self._variable([capacity, self._size], "float32") for _ in range(3)
            )
            self._steps = self._variable([capacity], "int64")
            self._run_steps = self._variable([capacity], "int64")
            words = secure.REPEATABLE_SEED if optimizer.secure_noise else 2
            self._seeds = self._variable([capacity, words], "int32")
            # Also where nothing is repeated: another graph would round differently.
            self._forced = self._variable([capacity, self._size], "float32")
            self._num_forced = self._variable([], "int32")
            if follows is not None and follows._size == self._size:
                self._forced.assign(follows._sums)
                self._num_forced.assign(follows.count)
        mechanism = optimizer.mechanism
        if mechanism.remembers_noise:
            # Past noise is as secret as the data, and so is a record of it.
            optimizer._state.unsaved += [self._noise, self._deviations]
        self._draw_noise, self._refine = mechanism.draw_noise, mechanism.refine
        # Past the mechanism's own guard: `refine` is an argument of `Composed`, too.
        object.__setattr__(mechanism, "draw_noise", self.draw_noise)
        object.__setattr__(mechanism, "refine", self.refine)

    def _variable(self, shape: Sequence[int], dtype: Any) -> Any:
        # Not the optimizer's own: nothing but what has been noised is written to it.
        variable = keras.Variable(
            shape=shape, dtype=dtype, initializer="zeros", trainable=False
        )
        self.variables.append(variable)
        return variable

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """The mechanism's own noise, and how large it is in each coordinate."""
        noise = self._draw_noise(shapes, seed, step)
        flat = self._flat(noise)
        if self.optimizer.mechanism.remembers_noise:
            # Made of several draws: its size is found out afterwards.
            self._drawn = (flat, tf.fill(flat.shape, math.nan))
            self._drawn_from = (seed, step)
            return noise
        normals = self._flat(standard_normals(shapes, seed))
        self._drawn = (flat, flat / normals)
        return noise

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        """The mechanism's own refinement of what this run, or the other, released."""
        flat = self._flat(noised)
        # A run that releases more often than the tape holds is an error later.
        index = tf.minimum(tf.convert_to_tensor(self._count), self._capacity - 1)
        self._write(self._sums, index, flat)
        self._write(self._steps, index, tf.cast(step, tf.int64))
        if self._drawn is not None:
            noise, deviation = self._drawn
            self._write(self._noise, index, noise)
            self._write(self._deviations, index, deviation)
        if self._drawn_from is not None:
            seed, run_step = self._drawn_from
            self._write(self._seeds, index, seed)
            self._write(self._run_steps, index, tf.cast(run_step, tf.int64))
        self._count.assign_add(1)
        forced = tf.gather(tf.convert_to_tensor(self._forced), index)
        forced = tf.where(index < self._num_forced, forced, flat)
        pieces = tf.split(forced[: sum(_sizes(noised))], _sizes(noised))
        noised = [
            tf.cast(tf.reshape(piece, value.shape), value.dtype)
            for piece, value in zip(pieces, noised, strict=True)
        ]
        return self._refine(noised, step)

    def _write(self, variable: Any, index: int, row: Any) -> None:
        old = tf.convert_to_tensor(variable)
        variable.assign(tf.tensor_scatter_nd_update(old, [[index]], row[tf.newaxis]))

    def _flat(self, values: Any) -> tf.Tensor:
        """All values in a row, padded: an update may be of some variables only."""
        flat = tf.concat(
            [tf.cast(tf.reshape(value, [-1]), tf.float32) for value in values], axis=0
        )
        return tf.pad(flat, [[0, self._size - flat.shape[0]]])

    @property
    def count(self) -> int:
        """How many releases there were.

        Raises:
            ValueError: If they were more than the tape holds.
        """
        count = int(self._count.numpy())
        if count > self._capacity:
            raise ValueError(
                f"Argument `max_releases` must be at least {count}, the number of "
                f"releases of the training. Received: max_releases={self._capacity}"
            )
        return count

    def rows(self, what: str) -> np.ndarray:
        """`[releases, parameters]` of "sums", "noise" or "deviations".

        Or `[releases]`: "steps", and "run_steps" where noise is correlated.
        """
        values = getattr(self, f"_{what}").numpy()[: self.count]
        if what == "deviations" and self._drawn_from is not None:
            strategy = self.optimizer.mechanism.noise
            parts = (self.rows(name) for name in ("noise", "seeds", "run_steps"))
            values = np.tile(deviations(strategy, *parts), [self._size, 1]).T
        return values


def _values(optimizer: Any) -> list:
    return keras_internals.variables_of(optimizer)


def _sizes(values: Any) -> list[int]:
    return [value.shape.num_elements() for value in values]
