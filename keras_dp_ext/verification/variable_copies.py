"""Copies of the variables that a graph uses, for experiments that change them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib


@dataclasses.dataclass(frozen=True, eq=False)
class _StandIn:
    placeholder: tf.Tensor
    original: tf.Tensor
    variable: tf.Variable


class VariableCopies:
    """Variables that take the place of those that a traced graph has captured.

    Whatever is run on them leaves the real variables alone, also where a function
    of the forward pass advances a seed.

    Args:
        ops: The ops of the graph.
    """

    def __init__(self, ops):
        self._all = []
        self._values: list[tf.Tensor] = []
        for op in ops:
            if op.type != "Placeholder" or op.outputs[0].dtype != tf.resource:
                continue
            handle = graph_lib.captured_source(op.outputs[0])
            if handle is not None and _is_initialized_variable(handle):
                self._all.append(_stand_in(op.outputs[0], handle))
        self.reset()

    def replaced(self) -> dict[int, tf.Tensor]:
        """From the id of a placeholder to the handle of what stands in for it."""
        return {id(one.placeholder): one.variable.handle for one in self._all}

    @property
    def have_seeds(self) -> bool:
        return any(map(_is_seed, self._all))

    def reset(self) -> None:
        """To the values of the real variables."""
        self._values = [one.original for one in self._all]
        self.restore()

    def restore(self) -> None:
        """Undoes what a run has changed, e.g. a seed that it has advanced."""
        for one, value in zip(self._all, self._values, strict=True):
            one.variable.assign(value)

    def perturb(self, generator: np.random.Generator) -> None:
        """Adds small random values to every float variable.

        What is zero now (a gate, the last layer of a residual branch) hides all
        that comes before it, but will not stay zero.
        """
        for number, one in enumerate(self._all):
            if one.variable.dtype.is_floating:
                seed = generator.integers(0, 2**31, 2)
                self._values[number] = _perturbed(one.original, seed)
        self.restore()

    def reseed(self, generator: np.random.Generator) -> None:
        """Other states of the seed generators."""
        for number, one in enumerate(self._all):
            if _is_seed(one):
                state = generator.integers(0, 2**31, 2)
                self._values[number] = tf.constant(state, one.variable.dtype)
        self.restore()


def _is_seed(one: _StandIn) -> bool:
    """`keras.random.SeedGenerator` keeps two integers, and nothing else tells it."""
    return one.variable.dtype.is_integer and one.variable.shape == [2]


def _is_initialized_variable(handle: tf.Tensor) -> bool:
    return tf_internals.variable_dtype(handle) is not None and bool(
        tf.raw_ops.VarIsInitializedOp(resource=handle)
    )


def _stand_in(placeholder: tf.Tensor, handle: tf.Tensor) -> _StandIn:
    dtype = tf_internals.variable_dtype(handle)
    with tf.device(handle.device):
        original = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
        return _StandIn(placeholder, original, tf_internals.local_variable(original))


def _perturbed(value: tf.Tensor, seed) -> tf.Tensor:
    """About a tenth of the variable's size, or of a usual initial value if zero."""
    noise = tf.random.stateless_normal(value.shape, seed)
    wide = tf.cast(value, tf.float32)
    size = tf.sqrt(tf.reduce_mean(tf.square(wide)))
    usual = 1.0 / math.sqrt(max(1, math.prod(value.shape[:-1])))
    # A variance, or a count, must not become negative.
    noise = tf.where(tf.reduce_min(wide) >= 0.0, tf.abs(noise), noise)
    return tf.cast(wide + 0.1 * tf.maximum(size, usual) * noise, value.dtype)
