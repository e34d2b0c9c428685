"""Part of a graph that is being traced, as a function that can run at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification import function_defs

_numbers = itertools.count()


class GraphFunction:
    """The very ops between some tensors of a graph, without a copy in Python.

    TensorFlow cuts the ops out of the graph by itself, which takes milliseconds; to
    create them again one by one took most of the first step.

    Args:
        inputs: Tensors of the graph in whose place other values will be given.
        outputs: Tensors of the same graph.

    Attributes:
        definition: The FunctionDef.
    """

    definition: function_pb2.FunctionDef

    def __init__(self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]):
        self.inputs, self.outputs = list(inputs), list(outputs)
        stop = set(map(id, self.inputs))
        ops = graph_lib.ancestors(self.outputs, stop)
        self.captured = [
            op.outputs[0]
            for op in ops
            if op.type == "Placeholder" and id(op.outputs[0]) not in stop
        ]
        self.sources = [_source(tensor) for tensor in self.captured]
        body = [op for op in ops if op.type != "Placeholder"]
        arguments = [*self.inputs, *self.captured]
        self._name = f"Probe_{next(_numbers)}"
        try:
            self.definition = tf_internals.define_function(
                self._name, body, arguments, self.outputs
            )
        except tf.errors.InvalidArgumentError:
            # An op waits for another one that is not among the ancestors.
            copies = _Copies(body, arguments)
            self.definition = tf_internals.define_function(
                self._name,
                copies.ops,
                copies.of(arguments),
                copies.of(self.outputs),
            )
        self._dtypes = [tensor.dtype for tensor in self.outputs]
        self._double: str | None = None

    def __call__(
        self,
        values: Sequence[tf.Tensor],
        stand_in: Callable[[tf.Tensor], tf.Tensor],
        double: bool = False,
    ) -> list[tf.Tensor]:
        """The outputs, for given inputs.

        Args:
            values: One for each input.
            stand_in: Gives what takes the place of a captured tensor.
            double: Computes in float64 what was float32 or less.
        """
        name, dtypes = self._name, self._dtypes
        values = [*values, *map(stand_in, self.sources)]
        if double:
            name = self._in_double()
            dtypes = list(map(function_defs.doubled_type, dtypes))
            values = list(map(function_defs.doubled_value, values))
        try:
            return tf_internals.call_function(name, values, dtypes, optimize=False)
        except (tf.errors.UnimplementedError, tf.errors.NotFoundError):
            # Some ops have kernels for other layouts or types only.
            return tf_internals.call_function(name, values, dtypes, optimize=True)

    def _in_double(self) -> str:
        if self._double is None:
            definitions = function_defs.in_double_precision(
                self.definition,
                tf_internals.function_definition,
                f"{self._name}_double",
            )
            for definition in definitions:
                tf_internals.add_definition(definition)
            self._double = definitions[-1].signature.name
        return self._double

    def forget(self) -> None:
        """Frees the memory of the function."""
        for name in (self._name, self._double):
            if name is not None:
                tf_internals.remove_function(name)


class _Copies:
    """Ops that were created again, without the order among them."""

    def __init__(self, ops: Iterable[tf.Operation], arguments: Any):
        graph = tf_internals.scratch_graph("copies")
        with graph.as_default():
            replaced = {
                id(tensor): tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
                for tensor in arguments
            }
            self._copies = copies_lib.copy_ops(ops, replaced)
        self.ops = [op for op in graph.get_operations() if op.type != "Placeholder"]

    def of(self, tensors: Any) -> list[tf.Tensor]:
        return [self._copies[id(tensor)] for tensor in tensors]


def _source(tensor: tf.Tensor) -> tf.Tensor:
    source = graph_lib.captured_source(tensor)
    if source is None:
        raise ValueError(f"Cannot evaluate input {tensor.op.name} of the model.")
    return source


def as_floats(tensor: tf.Tensor) -> np.ndarray:
    """What a tensor holds, not copied where that can be helped: to be read only."""
    if tensor.dtype not in (tf.float32, tf.float64):
        tensor = tf.cast(tensor, tf.float32)
    return np.asarray(memoryview(tensor))
