"""Ops that take parts of a tensor: slices, splits, lookups by index."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.sizes import quotient
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    by_number,
    integers,
    known_axes,
    needs_rank,
    only_rows,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


@dataclasses.dataclass
class Index:
    """One entry of `x[...]`: a new axis, a number, or a slice of an axis.

    Attributes:
        axis: Of the operand; `None` for a new axis.
        start: `None` if the slice begins with the first entry.
        stop: `None` if it ends with the last one.
        step: Its step.
        drops: Whether it is a number, so that the axis is gone.
    """

    axis: int | None
    start: object = None
    stop: object = None
    step: object = 1
    drops: bool = False


def indices(op: tf.Operation, inputs: Sequence[Value], rank: int) -> list[Index] | None:
    """The index expression of a `StridedSlice`; `None` if it is not known."""
    entries = [
        None if value.content is None else value.content.tolist()
        for value in inputs[1:4]
    ]
    count = next((len(values) for values in entries if values is not None), None)
    if count is None:
        return None
    # An entry that is not known must not be taken for one that is left out.
    starts, stops, steps = (
        [_UNKNOWN] * count
        if values is None
        else [_UNKNOWN if entry is None else entry for entry in values]
        for values in entries
    )
    masks = {
        name: op.get_attr(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }

    def has(name: str, number: int) -> bool:
        return bool(masks[name] >> number & 1)

    consumed = sum(
        not has("new_axis", n) and not has("ellipsis", n) for n in range(count)
    )
    result, axis = [], 0
    for number in range(count):
        if has("ellipsis", number):
            for _ in range(rank - consumed):
                result.append(Index(axis))
                axis += 1
        elif has("new_axis", number):
            result.append(Index(None))
        else:
            drops = has("shrink_axis", number)
            start = None if has("begin", number) and not drops else starts[number]
            stop = None if has("end", number) else stops[number]
            result.append(Index(axis, start, stop, steps[number], drops))
            axis += 1
    result += [Index(rest) for rest in range(axis, rank)]
    return result


_UNKNOWN = object()


@register("StridedSlice")
def strided_slice(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    entries = indices(op, inputs, value.rank)
    if entries is None:
        raise RowsLostError("takes a part that is not known in advance.")
    otherwise = frame.shape(op)
    shape: list[Any] = []
    new_axis = None
    for entry in entries:
        if entry.axis is None:
            shape.append(1)
            continue
        size = value.shape[entry.axis]
        is_whole = (
            not entry.drops
            and (entry.start is None or entry.start == 0)
            and (entry.stop is None or entry.stop == size)
            and entry.step == 1
        )
        if entry.axis == value.axis:
            if not is_whole:
                raise along_batch("takes some examples of all")
            new_axis = len(shape)
        if not entry.drops:
            shape.append(size if is_whole else otherwise[len(shape)])
    return value.with_shape(shape, new_axis)


@register("Slice")
def slice_(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, begin, size = inputs
    needs_rank(value)
    only_rows(inputs, 0)
    begins = None if begin.content is None else begin.content.tolist()
    sizes = None if size.content is None else size.content.tolist()
    if begins is None or sizes is None or begins[value.axis] != 0:
        raise along_batch("takes some examples of all")
    if sizes[value.axis] not in (-1, value.shape[value.axis]):
        raise along_batch("takes some examples of all")
    return frame.rows_like(value, op, value.axis)


@register("Split", "SplitV")
def split(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    number = 1 if op.type == "Split" else 0
    value = inputs[number]
    needs_rank(value)
    only_rows(inputs, number)
    (axis,) = known_axes(inputs[0 if op.type == "Split" else 2], value.rank)
    parts = len(op.outputs)
    if axis != value.axis:
        return [_part(value, op, axis, n, frame) for n in range(parts)]
    # `concat([views, other_views], axis=0)`, encoded, and taken apart again.
    outer = quotient(value.outer, parts)
    if outer is None or (op.type == "SplitV" and parts > 1 and not _even(inputs[1])):
        raise along_batch("splits")
    return [
        frame.rows(op, n, axis=axis, outer=outer, block=value.block)
        for n in range(parts)
    ]


def _part(
    value: Value, op: tf.Operation, axis: int, number: int, frame: Frame
) -> Value:
    shape = list(value.shape)
    shape[axis] = frame.shape(op, number)[axis]
    return value.with_shape(shape)


def _even(sizes: Value) -> bool:
    return sizes.content is not None and len(set(sizes.content.tolist())) == 1


@register("Unpack")
def unpack(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    (value,) = inputs
    needs_rank(value)
    axis = op.get_attr("axis") % value.rank
    if axis == value.axis:
        raise along_batch("takes single examples")
    shape = [size for n, size in enumerate(value.shape) if n != axis]
    part = value.with_shape(shape, value.axis - (axis < value.axis))
    return [part] * len(op.outputs)


@register("GatherV2")
def gather(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    params, index, axis = inputs
    needs_rank(params, index)
    only_rows(inputs, 0, 1)
    (axis,) = known_axes(axis, params.rank)
    batch_axes = op.get_attr("batch_dims")
    batch_axes += index.rank if batch_axes < 0 else 0
    shape = (
        *params.shape[:axis],
        *index.shape[batch_axes:],
        *params.shape[axis + 1 :],
    )
    if params.has_rows and params.axis == axis:
        if index.counts and index.shape == (params.shape[axis],):
            return params.with_shape(params.shape)  # `vectorized_map`: all in order.
        raise along_batch("takes examples by number")
    places = set()
    if params.has_rows:
        moved = index.rank - batch_axes - 1 if params.axis > axis else 0
        places.add((params.axis + moved, *params.layout))
    if index.has_rows:
        is_outer = index.axis < batch_axes
        moved = 0 if is_outer else axis - batch_axes
        places.add((index.axis + moved, *index.layout))
    if len(places) > 1:
        raise along_batch("takes examples by number")
    ((place, outer, block),) = places
    return frame.rows(op, axis=place, outer=outer, block=block, shape=shape)


@register("ResourceGather")
def resource_gather(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    only_rows(inputs, 1)
    index = inputs[1]
    shape = frame.shape(op)
    if shape is not None and index.rank is not None:
        shape = (*index.shape, *shape[index.rank :])
    return index.with_shape(shape)


@register("GatherNd", "ResourceGatherNd")
def gather_nd(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    params, index = inputs
    needs_rank(index)
    if params.has_rows:
        depth: Any = index.shape[-1]
        # Before the axis of the examples, and by public numbers: all rows alike.
        if index.is_constant and isinstance(depth, int) and depth <= params.axis:
            place = params.axis - depth + index.rank - 1
            return frame.rows_like(params, op, place)
        if _is_numbered(params, index):
            shape = (*index.shape[:-1], *params.shape[depth:])
            return frame.rows(op, axis=0, shape=shape)
        raise RowsLostError(
            "takes entries by number, maybe of another example. Use "
            "`tf.gather(x, index, batch_dims=1)`."
        )
    if index.axis == index.rank - 1:
        raise along_batch("works")
    return frame.rows_like(index, op, index.axis)


def _is_numbered(params: Value, index: Value) -> bool:
    """Whether each example's index begins with its own number."""
    return index.role == "numbered" and params.axis == 0 and params.layout == (1, 1)


@register("Multinomial", "StatelessMultinomial")
def draws(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """`[batch, classes]` to `[batch, samples]`."""
    only_rows(inputs, 0)
    if inputs[0].axis != 0 or integers(inputs[1]) is None:
        raise along_batch("draws")
    return frame.rows_like(inputs[0], op, 0)


@register("CropAndResize")
def crop_and_resize(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """One box for each image, in order."""
    images, boxes, numbers, _ = inputs
    only_rows(inputs, 0, 1)
    rows = same_rows([images, boxes])
    is_in_order = numbers.counts and numbers.shape == (frame.batch,)
    if rows.axis != 0 or (images.has_rows and not is_in_order):
        raise along_batch("takes examples by number")
    return frame.rows_like(rows, op, 0)


@register("StridedSliceGrad")
def strided_slice_gradient(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value:
    """The part gets back to its place, zeros around it."""
    shape, *index, upstream = inputs
    only_rows(inputs, 4)
    if shape.content is None:
        raise RowsLostError("fills a shape that is not known in advance.")
    sizes = shape.content.tolist()
    entries = indices(op, [shape, *index], len(sizes))
    if entries is None:
        raise RowsLostError("fills a part that is not known in advance.")
    entry = [entry for entry in entries if not entry.drops][upstream.axis]
    is_whole = entry.start in (None, 0) and entry.stop is None and entry.step == 1
    whole_size = upstream.outer * frame.batch * upstream.block
    if entry.axis is None or not is_whole or sizes[entry.axis] != whole_size:
        raise along_batch("moves data")
    return frame.rows_like(upstream, op, entry.axis)


@register("XlaDynamicUpdateSlice")
def update_slice(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, update, starts = inputs
    only_rows(inputs, 0, 1)
    needs_rank(value, update)
    rows = same_rows([value, update])
    start = None if starts.content is None else starts.content.tolist()[rows.axis]
    if start != 0 or value.shape[rows.axis] != update.shape[rows.axis]:
        raise along_batch("replaces a part")
    return rows.with_shape(value.shape)


@register(
    "UnsortedSegmentSum",
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
    "UnsortedSegmentProd",
)
def segments(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Sums by public numbers, along axes before that of the examples."""
    value, numbers, _ = inputs
    if not numbers.is_constant or not inputs[2].is_constant or numbers.rank is None:
        raise by_number()
    if value.axis < numbers.rank:
        raise by_number()
    return frame.rows_like(value, op, value.axis - numbers.rank + 1)
