"""Which resources (variables, tables, queues) an op writes from the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib

# Every other stateful op that is handed a resource may write to it.
_READS = frozenset(
    {
        "IteratorGetNext",
        "IteratorGetNextAsOptional",
        "IteratorGetNextSync",
        "LookupTableExportV2",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarIsInitializedOp",
        "VariableShape",
    }
)
_BRANCHES = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})


def written_from_data(
    op: tf.Operation, dependent: set[int], always: bool = False
) -> Iterator[tf.Tensor]:
    """The resource inputs of an op that it, or what it calls, writes from data.

    Args:
        op: The op.
        dependent: Ids of the tensors of its graph that depend on data.
        always: Whether data decide if the op runs at all.
    """
    resources = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    if not op.op_def.is_stateful or not resources or op.type in _READS:
        return
    if _is_log(op):
        return
    graphs = graph_lib.called_graphs(op)
    if graphs:
        yield from _written_by_functions(op, graphs, dependent, always)
    elif always or any(id(tensor) in dependent for tensor in op.inputs):
        yield from resources


def behind_identities(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _is_log(op: tf.Operation) -> bool:
    """`tf.summary`: as exact as every log, and no part of the model."""
    return op.type.startswith("Write") and op.type.endswith("Summary")


def _written_by_functions(op, graphs, dependent, always) -> Iterator[tf.Tensor]:
    inputs = list(op.inputs)
    if op.type in _BRANCHES:
        always = always or id(inputs[0]) in dependent
        inputs = inputs[1:]
    if any(len(graph.inputs) != len(inputs) for graph in graphs):
        # Not understood: it may write whatever it is given.
        if always or any(id(tensor) in dependent for tensor in inputs):
            yield from (tensor for tensor in inputs if tensor.dtype == tf.resource)
        return
    numbers = {n for n, tensor in enumerate(inputs) if id(tensor) in dependent}
    if op.type in graph_lib.LOOP_OPS:
        numbers, stops_by_data = _after_all_iterations(op, numbers)
        always = always or stops_by_data
    for graph in graphs:
        outer = {
            id(inner): tensor
            for inner, tensor in zip(graph.inputs, inputs, strict=True)
        }
        inside = _dependent_inside(graph, numbers)
        for inner_op in graph.get_operations():
            for tensor in written_from_data(inner_op, inside, always):
                tensor = behind_identities(tensor)
                yield outer.get(id(tensor), tensor)


def _dependent_inside(graph, numbers: Iterable[int]) -> set[int]:
    """What depends on data in a function, given the numbers of such inputs."""
    dependent = {id(graph.inputs[number]) for number in numbers}
    for op in graph.get_operations():
        if op.type in graph_lib.DATA_OPS or graph_lib.passes_data_on(op, dependent):
            dependent.update(id(output) for output in op.outputs)
    return dependent


def _after_all_iterations(loop, numbers: set[int]) -> tuple[set[int], bool]:
    """Inputs of a loop that depend on data in some iteration; whether data end it."""
    body = graph_lib.function_graph(loop, "body")
    condition = graph_lib.function_graph(loop, "cond")
    while True:
        inside = _dependent_inside(body, numbers)
        grown = numbers | {
            number for number, output in enumerate(body.outputs) if id(output) in inside
        }
        if grown == numbers:
            break
        numbers = grown
    stops = _dependent_inside(condition, numbers)
    return numbers, any(id(output) in stops for output in condition.outputs)
