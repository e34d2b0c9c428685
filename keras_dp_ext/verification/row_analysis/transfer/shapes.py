"""Ops that keep all entries and change the axes: reshape, transpose, tile, pad."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.sizes import (
    AnySize,
    Size,
    product,
    quotient,
)
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    known_axes,
    needs_rank,
    only_rows,
)
from keras_dp_ext.verification.row_analysis.values import Value, reshaped

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


@register("Reshape")
def reshape(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, wanted = inputs
    needs_rank(value)
    only_rows(inputs, 0)
    shape = target_shape(op, value, wanted)
    if shape is None:
        raise RowsLostError(
            "has a new shape that is not known in advance.",
            may_hide=wanted.content is not None and _is_certain(value, (), frame.batch),
        )
    result = reshaped(value, shape, frame.batch)
    if result is None:
        raise RowsLostError(
            "does not keep the batch axis whole. Received: shape "
            f"{_printed(value.shape)}, to be reshaped to {_printed(shape)}.",
            may_hide=_is_certain(value, shape, frame.batch),
        )
    return result


def target_shape(
    op: tf.Operation, value: Value, wanted: Value
) -> tuple[AnySize, ...] | None:
    """The new shape; an axis of size -1 is what remains."""
    static = op.outputs[0].shape
    content = None if wanted.content is None else wanted.content.tolist()
    if static.rank is None and content is None:
        return None
    rank = len(content) if static.rank is None else static.rank
    sizes: list[AnySize | None] = []
    for axis in range(rank):
        size = None if static.rank is None else static[axis]
        if size is None and content is not None and content[axis] != -1:
            size = content[axis]
        sizes.append(size)
    if sizes.count(None) > 1:
        return None
    if None in sizes:
        known = product(size for size in sizes if size is not None)
        rest = quotient(product(value.shape), known)
        if rest is None:
            return None
        sizes[sizes.index(None)] = rest
    return tuple(sizes)


def _is_certain(value: Value, shape: Any, batch: AnySize) -> bool:
    """Whether only the batch size is unknown: then no other proof can be hoped for."""
    allowed = batch.unknowns() if isinstance(batch, Size) else set()
    sizes = [size for size in (*value.shape, *shape) if isinstance(size, Size)]
    return all(size.unknowns() <= allowed for size in sizes)


def _printed(shape: Any) -> str:
    return str([size if isinstance(size, int) else None for size in shape])


@register("ExpandDims")
def expand_dims(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    (axis,) = known_axes(inputs[1], value.rank + 1)
    shape = list(value.shape)
    shape.insert(axis, 1)
    return value.with_shape(shape, value.axis + (axis <= value.axis))


@register("Squeeze")
def squeeze(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    (value,) = inputs
    needs_rank(value)
    axes = [axis % value.rank for axis in op.get_attr("squeeze_dims")]
    if not axes:
        if any(isinstance(size, Size) for size in value.shape):
            raise RowsLostError("removes axes that are not named.", may_hide=False)
        axes = [axis for axis, size in enumerate(value.shape) if size == 1]
    if value.axis in axes:
        raise along_batch("removes an axis")
    shape = [size for axis, size in enumerate(value.shape) if axis not in axes]
    before = sum(axis < value.axis for axis in axes)
    return value.with_shape(shape, value.axis - before)


@register("Transpose", "ConjugateTranspose")
def transpose(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    axes = known_axes(inputs[1], value.rank)
    return value.with_shape([value.shape[n] for n in axes], axes.index(value.axis))


@register("Tile")
def tile(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, multiples = inputs
    needs_rank(value)
    only_rows(inputs, 0)
    times = None if multiples.content is None else multiples.content.tolist()
    if times is None or times[value.axis] is None:
        raise RowsLostError("repeats the batch an unknown number of times.")
    otherwise = frame.shape(op)
    shape = [
        otherwise[axis] if factor is None else size * factor
        for axis, (size, factor) in enumerate(zip(value.shape, times, strict=True))
    ]
    outer = value.outer * times[value.axis]
    return dataclasses.replace(value.with_shape(shape), outer=outer)


@register("BroadcastTo")
def broadcast_to(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, wanted = inputs
    needs_rank(value)
    only_rows(inputs, 0)
    shape = frame.shape(op)
    if wanted.content is not None:
        content = wanted.content.tolist()
        shape = shape or [None] * len(content)
        shape = [
            static if isinstance(static, int) or size is None else size
            for static, size in zip(shape, content, strict=True)
        ]
    if shape is None or None in shape:
        raise RowsLostError("has a new shape of unknown rank.", may_hide=False)
    axis = value.axis + len(shape) - value.rank
    return frame.rows(op, axis=axis, outer=value.outer, block=value.block, shape=shape)


@register("Pad", "PadV2", "MirrorPad")
def pad(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    widths = inputs[1].content
    if widths is None or widths[value.axis].tolist() != [0, 0]:
        raise along_batch("pads")
    otherwise = frame.shape(op)
    shape = [
        otherwise[axis] if None in (before, after) else size + before + after
        for axis, (size, (before, after)) in enumerate(
            zip(value.shape, widths.tolist(), strict=True)
        )
    ]
    return value.with_shape(shape)


@register("OneHot")
def one_hot(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    axis = op.get_attr("axis") % (value.rank + 1)
    shape = list(value.shape)
    shape.insert(axis, one_hot_depth(op, inputs, frame, axis))
    return value.with_shape(shape, value.axis + (axis <= value.axis))


def one_hot_depth(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame, axis: int
) -> AnySize:
    """How many classes there are."""
    content = inputs[1].content
    depth = None if content is None else content.item()
    return frame.shape(op)[axis] if depth is None else depth


@register("Bitcast")
def bitcast(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    (value,) = inputs
    needs_rank(value)
    result = frame.rows_like(value, op, value.axis)
    if result.rank is None or value.axis >= min(value.rank, result.rank):
        raise along_batch("works")
    return result
