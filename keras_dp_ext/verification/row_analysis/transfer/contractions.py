"""Products of matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    different_rows,
    needs_rank,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


@register("MatMul")
def matmul(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return _product(op, inputs, frame, "transpose_a", "transpose_b")


@register("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return _product(op, inputs, frame, "adj_x", "adj_y")


def _product(
    op: tf.Operation,
    inputs: Sequence[Value],
    frame: Frame,
    first_transposed: str,
    second_transposed: str,
) -> Any:
    needs_rank(*inputs)
    first = _labels(inputs[0].rank, "m", "k", op.get_attr(first_transposed))
    second = _labels(inputs[1].rank, "k", "n", op.get_attr(second_transposed))
    rank = max(inputs[0].rank, inputs[1].rank)
    return _contract(op, inputs, [first, second], _labels(rank, "m", "n", False), frame)


def _labels(rank: int, rows: str, columns: str, is_transposed: bool) -> list:
    """Names of axes; those of a batch of matrices are counted from the last one."""
    matrix = [columns, rows] if is_transposed else [rows, columns]
    return [*range(rank - 3, -1, -1), *matrix]


@register("Einsum")
def einsum(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    needs_rank(*inputs)
    operands, output = op.get_attr("equation").decode().split("->")
    operands = [
        _expanded(labels, value.rank)
        for labels, value in zip(operands.split(","), inputs, strict=True)
    ]
    return _contract(
        op, inputs, operands, _expanded(output, op.outputs[0].shape.rank), frame
    )


def _expanded(labels: str, rank: int | None) -> list:
    labels = labels.strip()
    if "..." not in labels:
        return list(labels)
    if rank is None:
        raise RowsLostError("has a result of unknown rank.", may_hide=False)
    before, after = labels.split("...")
    return [*before, *range(rank - len(before) - len(after) - 1, -1, -1), *after]


def _contract(
    op: tf.Operation,
    inputs: Sequence[Value],
    operands: list[list],
    output: list,
    frame: Frame,
) -> Value:
    """Each axis has a label; what is not in the output is summed up."""
    places = set()
    for value, labels in zip(inputs, operands, strict=True):
        if value.has_rows:
            label = labels[value.axis]
            if labels.count(label) > 1 or output.count(label) > 1:
                raise along_batch("takes a diagonal")
            places.add((label, *value.layout))
    if len(places) > 1:
        raise different_rows()
    ((label, outer, block),) = places
    if label not in output:
        raise along_batch("adds up")
    sizes: dict[str, Any] = {}
    for value, labels in zip(inputs, operands, strict=True):
        for name, size in zip(labels, value.shape, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = size
    shape = [sizes.get(name, 1) for name in output]
    return frame.rows(
        op, axis=output.index(label), outer=outer, block=block, shape=shape
    )
