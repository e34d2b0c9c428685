"""Copies of the variables that a graph uses, for experiments that change them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.verification import scratch_memory
from keras_dp_ext.verification.graph_function import as_floats


@dataclasses.dataclass(eq=False)
class _StandIn:
    original: tf.Tensor
    variable: tf.Variable
    wide: tf.Variable | None = None


class VariableCopies:
    """Variables that take the place of those that a traced graph has captured.

    Whatever is run on them leaves the real variables alone, also where a function
    of the forward pass advances a seed.

    Args:
        handles: What the graph has captured; all but variables stay what they are.
    """

    def __init__(self, handles: Iterable[tf.Tensor]):
        unique = {id(handle): handle for handle in handles}
        self._handles = unique  # Keeps the ids alive.
        self._by_handle = {
            key: _stand_in(handle)
            for key, handle in unique.items()
            if handle.dtype == tf.resource and _is_initialized_variable(handle)
        }
        self._all = list(self._by_handle.values())
        self._values: list[tf.Tensor] = []
        self.reset()

    def stand_in(self, source: tf.Tensor) -> tf.Tensor:
        """What takes the place of a captured tensor."""
        one = self._by_handle.get(id(source))
        return source if one is None else one.variable.handle

    def wide_stand_in(self, source: tf.Tensor) -> tf.Tensor:
        """The same in float64."""
        one = self._by_handle.get(id(source))
        if one is None:
            return source
        if not one.variable.dtype.is_floating:
            return one.variable.handle
        if one.wide is None:
            one.wide = tf_internals.local_variable(tf.cast(one.variable, tf.float64))
        return one.wide.handle

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
            if one.wide is not None:
                one.wide.assign(tf.cast(value, tf.float64))

    def perturb(self, generator: np.random.Generator) -> None:
        """Adds small random values to every float variable.

        What is zero now (a gate, the last layer of a residual branch) hides all
        that comes before it, but will not stay zero.
        """
        self._change_floats(lambda value: _perturbed(value, generator))

    def redraw(self, generator: np.random.Generator) -> None:
        """Random values of a usual size: nothing depends on what the weights are."""
        self._change_floats(lambda value: _redrawn(value, generator))

    def _change_floats(self, change: Callable[..., Any]) -> None:
        for number, one in enumerate(self._all):
            if one.variable.dtype.is_floating:
                self._values[number] = change(one.original)
        self.restore()

    def reseed(self, generator: np.random.Generator) -> None:
        """Other states of the seed generators."""
        for number, one in enumerate(self._all):
            if _is_seed(one):
                shape = one.variable.shape
                state = generator.integers(0, 2**31, shape)
                self._values[number] = tf.constant(state, one.variable.dtype)
        self.restore()


def is_seed(dtype: tf.DType, shape: Any) -> bool:
    """`keras.random.SeedGenerator` keeps two integers, `tf.random.Generator` three,
    and nothing else tells them."""
    return dtype.is_integer and tuple(shape) in ((2,), (3,))


def _is_seed(one: _StandIn) -> bool:
    return is_seed(one.variable.dtype, one.variable.shape)


def _is_initialized_variable(handle: tf.Tensor) -> bool:
    return tf_internals.variable_dtype(handle) is not None and bool(
        tf.raw_ops.VarIsInitializedOp(resource=handle)
    )


def _stand_in(handle: tf.Tensor) -> _StandIn:
    dtype = tf_internals.variable_dtype(handle)
    with tf.device(handle.device):
        original = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
        return _StandIn(original, tf_internals.local_variable(original))


def _perturbed(value: tf.Tensor, generator: np.random.Generator) -> tf.Tensor:
    """About a tenth of the variable's size, or of a usual initial value if zero."""
    wide = as_floats(value)
    noise = generator.standard_normal(wide.shape, np.float32)
    size = math.sqrt(np.mean(np.square(wide, dtype=np.float64))) if wide.size else 0.0
    if wide.size and wide.min() >= 0.0:
        # A variance, or a count, must not become negative.
        noise = np.abs(noise)
    scale = 0.1 * max(size, _usual_size(wide.shape))
    return tf.constant(wide + np.float32(scale) * noise, value.dtype)


def _redrawn(value: tf.Tensor, generator: np.random.Generator) -> tf.Tensor:
    old = as_floats(value)
    drawn = scratch_memory.empty(old.shape)
    # Uniform numbers are drawn faster than normal ones.
    generator.random(out=drawn, dtype=np.float32)
    if old.size and old.min() >= 0.0 and old.max() > 0.0:
        # All positive: a gain or a variance, which must remain so.
        drawn += 0.5
    else:
        size = np.float32(math.sqrt(3) * _usual_size(old.shape))
        drawn *= 2 * size
        drawn -= size
    return tf.cast(scratch_memory.as_tensor(drawn), value.dtype)


def _usual_size(shape: Any) -> float:
    return 1.0 / math.sqrt(max(1, math.prod(shape[:-1])))
