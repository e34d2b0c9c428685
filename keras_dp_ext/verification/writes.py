"""Which resources (variables, tables, queues) an op writes from the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification import data_flow
from keras_dp_ext.verification.data_flow import DataFlow

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


@dataclasses.dataclass(frozen=True)
class Write:
    """A write from data.

    Attributes:
        resource: What is written, as the op that was asked about sees it.
        op: The op that writes, perhaps inside of a function.
        decided_by_data: Whether data decide if it is written at all.
    """

    resource: tf.Tensor
    op: tf.Operation
    decided_by_data: bool


def written_from_data(
    op: tf.Operation, flow: DataFlow, decided_by_data: bool = False
) -> Iterator[Write]:
    """What an op, or what it calls, writes from data.

    Args:
        op: The op.
        flow: How data flow through its graph.
        decided_by_data: Whether data decide if the op runs at all.
    """
    if not graph_lib.is_stateful(op) or op.type in _READS or _keeps_nothing(op):
        return
    if graph_lib.calls_functions(op):
        yield from _written_by_functions(op, flow, decided_by_data)
        return
    for resource in _resources(op.inputs):
        others = (tensor for tensor in op.inputs if tensor is not resource)
        if decided_by_data or any(tensor in flow for tensor in others):
            yield Write(resource, op, decided_by_data)


def only_reads(op: tf.Operation) -> bool:
    """Whether an op leaves everything that outlives a run as it is."""
    return op.type in _READS or not any(
        tensor.dtype == tf.resource for tensor in op.inputs
    )


def behind_identities(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _resources(tensors: Any) -> list[tf.Tensor]:
    return [tensor for tensor in tensors if tensor.dtype == tf.resource]


def _keeps_nothing(op: tf.Operation) -> bool:
    """Whether an op is handed a resource that keeps no data for later steps."""
    # Replicas exchange values; the resource is a token for their order.
    if op.type.startswith("Collective"):
        return True
    # `tf.summary`: as exact as every log, and no part of the model.
    return op.type.startswith("Write") and op.type.endswith("Summary")


def _written_by_functions(
    op: tf.Operation, flow: DataFlow, decided_by_data: bool
) -> Iterator[Write]:
    arguments = data_flow.call_arguments(op)
    if op.type in data_flow.BRANCH_OPS:
        decided_by_data = decided_by_data or op.inputs[0] in flow
    graphs = graph_lib.called_graphs(op)
    if not graphs or any(len(graph.inputs) != len(arguments) for graph in graphs):
        # Not understood: it may write whatever it is given.
        if decided_by_data or any(tensor in flow for tensor in arguments):
            for resource in _resources(arguments):
                yield Write(resource, op, decided_by_data)
        return
    numbers = {n for n, tensor in enumerate(arguments) if tensor in flow}
    if op.type in graph_lib.LOOP_OPS:
        numbers, ended_by_data = data_flow.in_any_iteration(op, numbers)
        decided_by_data = decided_by_data or ended_by_data
    for graph in graphs:
        outer = {
            id(inner): tensor
            for inner, tensor in zip(graph.inputs, arguments, strict=True)
        }
        flow_inside = data_flow.inside(graph, numbers)
        for inner_op in graph.get_operations():
            for write in written_from_data(inner_op, flow_inside, decided_by_data):
                resource = behind_identities(write.resource)
                yield dataclasses.replace(
                    write, resource=outer.get(id(resource), resource)
                )
