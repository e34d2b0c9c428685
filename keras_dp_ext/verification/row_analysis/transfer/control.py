"""Calls, branches and loops: their functions are entered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.sizes import Size
from keras_dp_ext.verification.row_analysis.transfer.common import different_rows
from keras_dp_ext.verification.row_analysis.values import MIXED, Kind, Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

# An abstract value can only get worse a few times.
_MOST_ROUNDS = 8


@register("PartitionedCall", "StatefulPartitionedCall")
def call(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    (graph,) = _graphs(op, len(inputs))
    outputs, _ = frame.call(graph, inputs, op.name)
    return outputs


@register("If", "StatelessIf", "Case", "StatelessCase")
def branches(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    condition, *arguments = inputs
    if not condition.is_constant:
        raise data_decide("which branch is taken")
    graphs = _graphs(op, len(arguments))
    results = [
        frame.call(graph, arguments, f"{op.name}/{number}")[0]
        for number, graph in enumerate(graphs)
    ]
    outputs = results[0]
    for others in results[1:]:
        outputs = [
            join(a, b, (*frame.path, op.name, number))
            for number, (a, b) in enumerate(zip(outputs, others, strict=True))
        ]
    return outputs


@register("OptionalFromValue")
def kept_for_the_gradient(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value:
    """What a branch keeps for its gradient. Nothing reads it on the way to a loss:
    `OptionalGetValue` there would be refused as other data."""
    value = inputs[0]
    return value.with_shape(value.shape)


@register("While", "StatelessWhile")
def loop(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    state = list(inputs)
    findings = {}
    for _ in range(_MOST_ROUNDS):
        body = _function(op, "body", state, frame)
        after, inner = frame.call(body, state, op.name, quiet=True)
        for finding in inner.findings:
            if finding.may_hide or finding.path not in findings:
                findings[finding.path] = finding
        if any(value.kind is Kind.ONE_ROW for value in after):
            raise RowsLostError("carries data from one example to the next.")
        joined = [
            join(a, b, (*frame.path, op.name, number))
            for number, (a, b) in enumerate(zip(state, after, strict=True))
        ]
        if all(a.is_same(b) for a, b in zip(state, joined, strict=True)):
            break
        state = joined
    else:
        raise RowsLostError("moves its examples from one iteration to the next.")
    # What mixes in the first round is mixed from then on, and no finding any more.
    frame.findings.extend(findings.values())
    condition = _function(op, "cond", state, frame)
    (go_on,), _ = frame.call(condition, state, f"{op.name}/cond")
    if not go_on.is_constant:
        raise data_decide("when the loop ends")
    return state


def data_decide(what: str) -> RowsLostError:
    return RowsLostError(
        f"lets data decide {what}, for all examples at once. Use `tf.where` row by row."
    )


def join(a: Value, b: Value, name: tuple) -> Value:
    """What holds whichever of two values a tensor has."""
    if Kind.MIXED in (a.kind, b.kind):
        return MIXED
    if a.is_same(b):
        return a
    if Kind.PIECES in (a.kind, b.kind):
        raise different_rows()
    if a.is_constant or b.is_constant:
        other = b if a.is_constant else a
    elif (a.kind, a.axis, a.layout, a.row) == (b.kind, b.axis, b.layout, b.row):
        other = a
    else:
        raise different_rows()
    return dataclasses.replace(
        other,
        shape=_joined_shape(a, b, name),
        content=None,
        length=a.length if a.length == b.length else None,
        counts=False,
        first=None,
        role=None,
    )


def _joined_shape(a: Value, b: Value, name: tuple) -> Any:
    if a.rank is None or b.rank is None or a.rank != b.rank:
        return None
    return tuple(
        x if x == y else Size.unknown(*name, "joined", axis)
        for axis, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))
    )


def _function(
    op: tf.Operation, attribute: str, inputs: Sequence[Value], frame: Frame
) -> Any:
    graph = graph_lib.function_graph(op, attribute)
    if graph is None:
        graph = frame.legacy_graph(op, op.get_attr(attribute).name, inputs)
    if graph is None or len(graph.inputs) != len(inputs):
        raise RowsLostError("calls a function that cannot be read.")
    return graph


def _graphs(op: tf.Operation, number_of_inputs: int) -> list:
    graphs = graph_lib.called_graphs(op)
    if not graphs or any(len(graph.inputs) != number_of_inputs for graph in graphs):
        raise RowsLostError("calls a function that cannot be read.")
    return graphs
