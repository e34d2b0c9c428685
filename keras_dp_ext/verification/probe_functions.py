"""The ops of a training step as functions that the probe can call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.variable_copies import VariableCopies


@dataclasses.dataclass(frozen=True)
class GradientResult:
    """Gradients of `sum_b r_b loss_b`, as NumPy arrays.

    Attributes:
        losses: `[rows]`.
        norms_squared: `[rows]`, of the per-example gradients.
        sums: By the rules, for each variable.
        truth: The ordinary gradients.
        inputs: The ordinary gradients with respect to float inputs.
    """

    losses: np.ndarray
    norms_squared: np.ndarray
    sums: list[np.ndarray]
    truth: list[np.ndarray]
    inputs: list[np.ndarray]

    def is_finite(self) -> bool:
        values = (self.losses, *self.truth, *self.inputs)
        return all(np.isfinite(value).all() for value in values)


class ProbeFunctions:
    """Copies the ops of a graph that is being traced to the eager level.

    Args:
        losses: `[batch]`, in that graph.
        sources: Through which data enters.
        ops: All ops between the sources and the losses.
        variables: The trainable variables.
        gradients: The engine's gradients.
        group: Examples per microbatch.
    """

    def __init__(self, losses, sources, ops, variables, gradients, group: int):
        self._original_losses = losses
        self._sources = list(sources)
        self._forward_ops = list(ops)
        self._variables = list(variables)
        self._group = group
        self._weights = tf.zeros([gradients.num_rows])
        gradients = gradients.copy()
        self._norms = gradients.norm_squared()
        self._sums = gradients.weighted_sum(self._weights)
        self._rows = self._row_losses(losses)
        self._truth_graph, self._truth_weights, self._truth, self._input_truth = (
            self._make_truth(losses.graph)
        )
        self._captured = {
            id(inner): outer for outer, inner in self._truth_graph.captures
        }
        wanted = [self._rows, self._norms, *self._sums, *self._captured.values()]
        self.ops = graph_lib.ancestors(
            filter(graph_lib.is_symbolic, wanted), stop=set(map(id, self._sources))
        )
        self._copies: dict[int, tf.Tensor] = {}

    def use(self, copies: VariableCopies) -> None:
        """Lets the functions run on other variables than the real ones."""
        self._copies = copies.replaced()
        self.losses = tf.function(self._trace_losses, autograph=False)
        self._gradients = tf.function(self._trace_gradients, autograph=False)

    def gradients(self, data: Sequence[tf.Tensor], r: np.ndarray) -> GradientResult:
        results = self._gradients(list(data), tf.constant(r))
        return GradientResult(
            *tf.nest.map_structure(lambda tensor: tensor.numpy(), results)
        )

    def every_float(self) -> tuple[list[tf.Tensor], Callable]:
        """All float tensors of the forward pass, and a function of their values."""
        tensors = [
            output
            for op in self._forward_ops
            for output in op.outputs
            if output.dtype.is_floating and output.shape.rank
        ]

        @tf.function(autograph=False)
        def evaluate(inputs):
            copies = _copy(self._forward_ops, self._replaced(inputs))
            return [copies[id(tensor)] for tensor in tensors]

        return tensors, evaluate

    def _replaced(self, inputs) -> dict[int, tf.Tensor]:
        inputs = zip(map(id, self._sources), inputs, strict=True)
        return {**self._copies, **dict(inputs)}

    def _row_losses(self, losses: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.reshape(losses, [-1, self._group]), axis=1)

    def _trace_losses(self, inputs):
        copies = _copy(self._forward_ops, self._replaced(inputs))
        return copies[id(self._original_losses)]

    def _trace_gradients(self, inputs, r):
        replaced = self._replaced(inputs)
        replaced[id(self._weights)] = r
        copies = _copy(self.ops, replaced)
        inner = {
            key: copies.get(id(outer), outer) for key, outer in self._captured.items()
        }
        inner[id(self._truth_weights)] = r
        found = [*self._truth, *self._input_truth]
        truth_copies = _copy(graph_lib.ancestors(found, stop=inner), inner)
        return (
            copies[id(self._rows)],
            copies[id(self._norms)],
            [copies[id(value)] for value in self._sums],
            [truth_copies[id(value)] for value in self._truth],
            [truth_copies[id(value)] for value in self._input_truth],
        )

    def _make_truth(self, graph):
        """The ordinary gradient of `sum_b r_b loss_b`, in a graph of its own.

        Of its own, because gradients of loops add outputs to the loop.
        """
        scratch = tf_internals.scratch_graph("probe")
        with scratch.as_default():
            r = tf.compat.v1.placeholder(tf.float32, [None])
            replaced = {}
            for variable in self._variables:
                handle = graph_lib.handle_in_graph(variable, graph)
                if handle is not None:
                    replaced[id(handle)] = scratch.capture(handle)
            starts = [
                op.outputs[0] for op in self._forward_ops if op.type == "Placeholder"
            ]
            for tensor in (*starts, *self._sources):
                if id(tensor) not in replaced:
                    replaced[id(tensor)] = scratch.capture(tensor)
            copies = graph_lib.copy_ops(self._forward_ops, replaced, retrace_loops=True)
            rows = self._row_losses(copies[id(self._original_losses)])
            handles = [
                replaced.get(id(graph_lib.handle_in_graph(variable, graph)))
                for variable in self._variables
            ]
            floats = [
                replaced[id(source)]
                for source in self._sources
                if source.dtype.is_floating
            ]
            found = _gradients(tf.reduce_sum(r * rows), [*handles, *floats])
        truth, of_inputs = found[: len(handles)], found[len(handles) :]
        with scratch.as_default():
            truth = [
                tf.zeros(variable.shape) if gradient is None else gradient
                for gradient, variable in zip(truth, self._variables, strict=True)
            ]
        return scratch, r, truth, [value for value in of_inputs if value is not None]


def _gradients(total: tf.Tensor, xs) -> list[tf.Tensor | None]:
    """Dense float32 gradients; `None` with respect to what plays no part."""
    found = iter(tf.gradients(total, [x for x in xs if x is not None]))
    gradients = [None if x is None else next(found) for x in xs]
    return [
        None
        if gradient is None
        else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
        for gradient in gradients
    ]


def _copy(ops, replaced):
    """Copies ops of a traced graph to the eager level, with its captures."""
    for op in ops:
        if op.type == "Placeholder" and id(op.outputs[0]) not in replaced:
            source = graph_lib.captured_source(op.outputs[0])
            if source is None:
                raise ValueError(f"Cannot evaluate input {op.name} of the model.")
            replaced[id(op.outputs[0])] = source
    return graph_lib.copy_ops(ops, replaced)
