"""Judges the losses of a training step."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

import keras_dp_ext.verification.row_analysis.transfer  # noqa: F401
from keras_dp_ext.verification.row_analysis.findings import Finding, Verdict
from keras_dp_ext.verification.row_analysis.frame import Frame
from keras_dp_ext.verification.row_analysis.sizes import AnySize, Size
from keras_dp_ext.verification.row_analysis.values import MIXED, Kind, Value


def analyse(
    losses: tf.Tensor | Sequence[tf.Tensor], sources: Sequence[tf.Tensor]
) -> Verdict:
    """Whether each loss depends on one example, whatever the inputs.

    Args:
        losses: One or more tensors `[batch, ...]` of the graph that is being traced.
        sources: The tensors through which data enter, with the batch as first axis.

    Returns:
        The verdict. What is not proven may still be innocent: `Verdict.unknown` names
        the ops.
    """
    outputs = [losses] if tf.is_tensor(losses) else list(losses)
    batch = _batch_size(sources)
    known, findings = {}, []
    for source in sources:
        value = _source(source, batch)
        if value is MIXED:
            reason = "brings in data that all examples share."
            findings.append(Finding(source.op, reason, source.op.name, may_hide=True))
        known[id(source)] = value
    frame = Frame(batch, known, findings=findings)
    for output, value in zip(outputs, frame.run(outputs), strict=True):
        if not _has_one_row_each(value) and not findings:
            reason = "has rows that are not examples."
            findings.append(Finding(output.op, reason, output.op.name, may_hide=True))
    return Verdict(not findings, tuple(findings))


def _has_one_row_each(value: Value) -> bool:
    if value.is_constant:
        return True
    return value.has_rows and value.axis == 0 and value.layout == (1, 1)


def _batch_size(tensors: Sequence[tf.Tensor]) -> AnySize:
    """A number if any of the tensors has one."""
    for tensor in tensors:
        if tensor.shape.rank and tensor.shape[0] is not None:
            return tensor.shape[0]
    return Size.unknown("batch")


def _source(source: tf.Tensor, batch: AnySize) -> Value:
    if not source.shape.rank or source.shape[0] not in (None, batch):
        return MIXED
    shape = source.shape.as_list()
    sizes = (
        Size.unknown(source.name, axis) if size is None else size
        for axis, size in enumerate(shape)
    )
    return Value(Kind.ROWS, shape=(batch, *list(sizes)[1:]))
