"""Ops that put tensors together: concatenation and stacking."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    known_axes,
    needs_rank,
    only_rows,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.transfer.elementwise import (
    broadcast_shape,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


@register("ConcatV2")
def concat(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    *parts, place = inputs
    needs_rank(*parts)
    only_rows(inputs, *range(len(parts)))
    (axis,) = known_axes(place, parts[0].rank)
    if any(part.has_rows and part.axis == axis for part in parts):
        return _concat_batches(op, parts, axis)
    rows = same_rows(parts)
    total = sum((part.shape[axis] for part in parts), 0)
    shape = broadcast_shape([part.shape for part in parts], frame.shape(op))
    shape[axis] = total
    return frame.rows(
        op, axis=rows.axis, outer=rows.outer, block=rows.block, shape=shape
    )


def _concat_batches(op: tf.Operation, parts: Sequence[Value], axis: int) -> Value:
    """Batches one behind the other: `[views * batch, ...]`."""
    first = parts[0]
    for part in parts:
        if not part.has_rows or part.axis != axis or part.block != first.block:
            raise along_batch("joins something")
    shape = list(first.shape)
    shape[axis] = sum((part.shape[axis] for part in parts), 0)
    outer = sum((part.outer for part in parts), 0)
    return dataclasses.replace(first.with_shape(shape), outer=outer)


@register("Pack")
def pack(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    needs_rank(*inputs)
    rows = same_rows(inputs)
    axis = op.get_attr("axis") % (rows.rank + 1)
    shape = broadcast_shape([value.shape for value in inputs], None)
    shape = [rows.shape[n] if size is None else size for n, size in enumerate(shape)]
    shape.insert(axis, len(inputs))
    result = rows.with_shape(shape, rows.axis + (axis <= rows.axis))
    is_numbered = inputs[0].counts and rows.rank == axis == 1 and rows.layout == (1, 1)
    if is_numbered and inputs[0].shape == (frame.batch,):
        # `stack([range(batch), index], axis=1)`: each example looks up its own row.
        result = dataclasses.replace(result, role="numbered")
    return result
