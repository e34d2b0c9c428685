"""Judges the losses of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import keras_dp_ext.verification.row_analysis.transfer  # noqa: F401
from keras_dp_ext._compat import tf_internals
from keras_dp_ext.verification.row_analysis.findings import Finding, Verdict
from keras_dp_ext.verification.row_analysis.frame import Frame
from keras_dp_ext.verification.row_analysis.sizes import AnySize, Size
from keras_dp_ext.verification.row_analysis.values import (
    MIXED,
    Kind,
    Value,
)


def analyse(
    losses: tf.Tensor | Sequence[tf.Tensor],
    sources: Sequence[tf.Tensor],
    group: int = 1,
) -> Verdict:
    """Whether each loss depends on one example, whatever the inputs.

    Args:
        losses: One or more tensors `[batch, ...]` of the graph that is being traced.
        sources: The tensors through which data enter, with the batch as first axis.
        group: Examples per microbatch, which may see each other.

    Returns:
        The verdict. What is not proven may still be innocent: `Verdict.unknown` names
        the ops.
    """
    outputs: list[Any] = [losses] if tf.is_tensor(losses) else list(losses)
    frame, known, findings = _begin(sources, group)
    for source in sources:
        if known[id(source)] is MIXED:
            reason = "brings in data that all examples share."
            findings.append(Finding(source.op, reason, source.op.name, may_hide=True))
    for output, value in zip(outputs, frame.run(outputs), strict=True):
        if not _is_in_order(value, group):
            _note_disorder(findings, output, output.op.name)
    return Verdict(not findings, tuple(findings))


def values_of_tensors(
    losses: tf.Tensor, sources: Sequence[tf.Tensor], group: int = 1
) -> dict[int, Value]:
    """What is known about each tensor before the losses, by the id of the tensor."""
    frame, known, _ = _begin(sources, group)
    frame.run([losses])
    return known


def _begin(
    sources: Sequence[tf.Tensor], group: int
) -> tuple[Frame, dict[int, Value], list[Finding]]:
    batch = _number_of_rows(sources, group)
    known = {id(source): _source(source, batch, group) for source in sources}
    findings: list[Finding] = []
    return Frame(batch, known, findings=findings), known, findings


def analyse_functions(graphs: Sequence, specs: Sequence[tf.TensorSpec]) -> Verdict:
    """Whether functions, one after the other, keep the rows of a batch apart.

    Args:
        graphs: Of the functions of `Dataset.map`.
        specs: Of the tensors that the first function takes, with the batch as first
            axis.
    """
    batch = specs[0].shape[0]
    values = [Value(Kind.ROWS, shape=tuple(spec.shape)) for spec in specs]
    findings: list[Finding] = []
    for number, graph in enumerate(graphs):
        path = (f"map_{number}",)
        taken = len(tf_internals.captures_of(graph))
        arguments = graph.inputs[: len(graph.inputs) - taken]
        known = {id(t): v for t, v in zip(arguments, values, strict=True)}
        # What a function has captured is found as a placeholder: a constant.
        frame = Frame(batch, known, path, findings, has_gradient=False)
        values = frame.run(graph.outputs)
        for tensor, value in zip(graph.outputs, values, strict=True):
            is_ragged = value.role == "ragged"
            if not is_ragged and not _is_in_order(value, group=1):
                _note_disorder(findings, tensor, f"{path[0]}/{tensor.op.name}")
    return Verdict(not findings, tuple(findings))


def _note_disorder(findings: list[Finding], tensor: tf.Tensor, path: str) -> None:
    """A result without rows, unless the op that lost them is known already."""
    if not any(finding.may_hide for finding in findings):
        reason = "has rows that are not the examples of the batch."
        findings.append(Finding(tensor.op, reason, path, may_hide=True))


def _is_in_order(value: Value, group: int) -> bool:
    if value.is_constant:
        return True
    return value.has_rows and value.axis == 0 and value.layout == (1, group)


def _number_of_rows(sources: Sequence[tf.Tensor], group: int) -> AnySize:
    """A number if any of the sources has one."""
    for source in sources:
        if source.shape.rank and source.shape[0] is not None:
            return source.shape[0] // group
    return Size.unknown("batch")


def _source(source: tf.Tensor, batch: AnySize, group: int) -> Value:
    first = batch * group
    if not source.shape.rank or source.shape[0] not in (None, first):
        return MIXED
    sizes = [
        Size.unknown(source.name, axis) if size is None else size
        for axis, size in enumerate(source.shape.as_list())
    ]
    return Value(Kind.ROWS, shape=(first, *sizes[1:]), block=group)
