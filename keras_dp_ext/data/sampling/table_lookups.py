"""Finds functions of `map` that look examples up instead of transforming them.

`from_tensor_slices(indices).map(lambda i: x[i])` yields whatever the indices say, and
`x[random]` whatever chance says: how often an example occurs cannot be read off such a
pipeline.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals

_LOOKUPS = frozenset(
    {
        "Gather",
        "GatherNd",
        "GatherV2",
        "ResourceGather",
        "ResourceGatherNd",
        "Slice",
        "StridedSlice",
    }
)
_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_SAME = frozenset({"Cast", "Identity", "ReadVariableOp", "Reshape"})

# Tables that are no data: names of classes, weights of classes, colours.
_SMALL_TABLE_OF_VECTORS = 16
_SMALL_TABLE_OF_NUMBERS = 1024


def looks_examples_up(function: Any, num_elements: int) -> str | None:
    """Why the results of a function may be other examples than its argument.

    Args:
        function: A traced function of `Dataset.map`.
        num_elements: How many elements it is applied to.

    Returns:
        What it does, in words that follow the function's name; `None` if nothing.
    """
    return _search(function.graph, num_elements)


def _search(graph: Any, num_elements: int) -> str | None:
    # The leading inputs of a `map` function are its arguments, the rest is captured.
    captured = {id(inner) for _, inner in tf_internals.captures_of(graph)}
    for op in graph.get_operations():
        if op.type in _PYTHON:
            return "runs Python, which may yield anything"
        if op.type in _LOOKUPS:
            table = _origin(op.inputs[0])
            foreign = table.op.type == "Const" or id(table) in captured
            if foreign and _may_hold_examples(op.inputs[0], num_elements):
                return "takes rows out of a table that may hold examples"
    for inner in _inner_graphs(graph):
        reason = _search(inner, num_elements)
        if reason:
            return reason
    return None


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type in _SAME and len(tensor.op.inputs):
        tensor = tensor.op.inputs[0]
    return tensor


def _may_hold_examples(tensor: tf.Tensor, num_elements: int) -> bool:
    shape = (
        tensor.shape
        if tensor.dtype != tf.resource
        else tf_internals.variable_shape(tensor)
    )
    if shape.rank is None or (shape.rank and shape[0] is None):
        return True
    if shape.rank == 0:
        return False
    if shape.rank == 1:
        return shape[0] > _SMALL_TABLE_OF_NUMBERS or shape[0] >= max(2, num_elements)
    return shape[0] > _SMALL_TABLE_OF_VECTORS


def _inner_graphs(graph: Any) -> list[Any]:
    """The bodies of functions, branches and loops in a graph."""
    graphs = map(tf_internals.graph_of_function, tf_internals.functions_of_graph(graph))
    return [inner for inner in graphs if inner is not None]
