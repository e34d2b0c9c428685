"""Gradients that users wrote with `tf.custom_gradient`, as graphs of their own.

Such a function closes over tensors of the graph in which it was written. Where a copy of
that graph is differentiated, it must find the copies of these tensors instead: those of
one example, not of the batch, or those of another loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib


@dataclasses.dataclass(frozen=True, eq=False)
class TracedGradient:
    """The gradient function of one op.

    Attributes:
        graph: What it computes; its captures are what the function closes over.
        upstream: What it is given: the gradient of each output of the op.
        results: The gradient of each input of the op, or `None`.
    """

    graph: Any
    upstream: list[tf.Tensor]
    results: list[tf.Tensor | None]


def is_custom(op: tf.Operation) -> bool:
    """Whether a user has written the gradient of an op."""
    return tf_internals.custom_gradient(op) is not None


def trace_gradient(op: tf.Operation) -> TracedGradient:
    """Calls the gradient function of an op in a graph of its own.

    Raises:
        ValueError: If the function does not return a gradient for each input.
    """
    function = tf_internals.custom_gradient(op)
    with op.graph.as_default():
        graph = tf_internals.scratch_graph("gradient")
    with graph.as_default():
        upstream = [
            tf.compat.v1.placeholder(output.dtype, output.shape)
            for output in op.outputs
        ]
        results = function(op, *upstream)
        if not isinstance(results, list | tuple):
            results = [results]
        if len(results) != len(op.inputs):
            raise ValueError(
                f"The gradient function of op {op.name} must return a gradient for "
                f"each of its {len(op.inputs)} inputs. Received: {len(results)}"
            )
        results = [one if one is None else tf.convert_to_tensor(one) for one in results]
    return TracedGradient(graph, upstream, results)


def gradient_of_copy(
    op: tf.Operation,
    copy_of: Callable[[tf.Tensor], tf.Tensor],
    copy_ops: Callable[[list[tf.Operation], dict[int, tf.Tensor]], dict],
) -> Callable:
    """The gradient function for a copy of an op.

    Args:
        op: The original.
        copy_of: From a tensor that the gradient function closes over to what stands
            for it.
        copy_ops: Copies ops, with some tensors replaced, into the default graph.
    """

    def gradient(copy: tf.Operation, *upstream: Any) -> list[tf.Tensor | None]:
        del copy
        traced = trace_gradient(op)
        replaced = {
            id(given): tf.convert_to_tensor(value)
            for given, value in zip(traced.upstream, upstream, strict=True)
            if value is not None
        }
        for outer, inner in tf_internals.captures_of(traced.graph):
            replaced[id(inner)] = copy_of(outer)
        results = [one for one in traced.results if one is not None]
        copies = copy_ops(graph_lib.ancestors(results), replaced)
        return [one if one is None else copies[id(one)] for one in traced.results]

    return gradient
