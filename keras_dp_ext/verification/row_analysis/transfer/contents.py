"""The entries of small constant tensors of integers, such as shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.row_analysis.registry import register_content
from keras_dp_ext.verification.row_analysis.sizes import product
from keras_dp_ext.verification.row_analysis.transfer.common import integers
from keras_dp_ext.verification.row_analysis.transfer.shapes import (
    one_hot_depth,
    target_shape,
)
from keras_dp_ext.verification.row_analysis.transfer.slices import indices
from keras_dp_ext.verification.row_analysis.values import Kind, Value, constant

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

# Shapes and axes are short; weights and token tables are not read.
_LONGEST = 64


def object_array(entries: Any) -> np.ndarray:
    """An array of objects, whatever their number and depth."""
    return np.array(entries, dtype=object)


def with_content(entries: Any) -> Value:
    array = entries if isinstance(entries, np.ndarray) else object_array(entries)
    if array.size > _LONGEST:
        return constant(array.shape)
    return constant(array.shape, array)


@register_content("Const")
def const(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    tensor = op.outputs[0]
    shape = tensor.shape
    if not tensor.dtype.is_integer or shape.num_elements() > _LONGEST:
        return None
    return with_content(tf.get_static_value(tensor).astype(object))


@register_content("Shape", "ShapeN", "Size", "Rank", "VariableShape")
def shape_of(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value] | Value:
    if op.type == "VariableShape":
        return constant(frame.shape(op))
    results = [_shape_content(op, value) for value in inputs]
    return [
        constant(frame.shape(op, number)) if result is None else with_content(result)
        for number, result in enumerate(results)
    ]


def _shape_content(op: tf.Operation, value: Value) -> Any:
    if value.shape is None:
        return None
    if op.type == "Rank":
        return object_array(len(value.shape))
    if op.type == "Size":
        return object_array(product(value.shape))
    return object_array(list(value.shape))


@register_content("Identity", "StopGradient", "Cast", "EnsureShape", "PreventGradient")
def same(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    before, after = op.inputs[0].dtype, op.outputs[0].dtype
    # A type of 8 or 16 bits wraps around: 256 becomes 0.
    is_exact = before == after or after.size >= 4
    if after.is_integer and (before.is_integer or before.is_bool) and is_exact:
        return inputs[0]
    return constant(inputs[0].shape)


@register_content("Pack")
def pack(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    """Entries that are not known leave the others what they are."""
    if op.outputs[0].shape.rank != 1 or not op.outputs[0].dtype.is_integer:
        return None
    return with_content(
        [None if value.content is None else value.content.item() for value in inputs]
    )


@register_content("ConcatV2")
def concat(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    parts = inputs[:-1]
    if op.outputs[0].shape.rank != 1 or not op.outputs[0].dtype.is_integer:
        return None
    entries = []
    for part in parts:
        if part.content is not None:
            entries += part.content.tolist()
        elif part.shape is not None and isinstance(part.shape[0], int):
            entries += [None] * part.shape[0]
        else:
            return None
    return with_content(entries)


@register_content("StridedSlice")
def strided_slice(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value | None:
    content = inputs[0].content
    if content is None or any(integers(value) is None for value in inputs[1:4]):
        return None
    key: list[Any] = []
    for entry in indices(op, inputs, content.ndim):
        if entry.axis is None:
            key.append(None)
        elif entry.drops:
            key.append(entry.start)
        else:
            key.append(slice(entry.start, entry.stop, entry.step))
    part = content[tuple(key)]
    return with_content(part if isinstance(part, np.ndarray) else object_array(part))


@register_content("Slice")
def slice_(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content = inputs[0].content
    begin, size = (integers(value) for value in inputs[1:])
    if content is None or content.ndim != 1 or begin is None or size is None:
        return None
    stop = None if size[0] == -1 else begin[0] + size[0]
    return with_content(content[begin[0] : stop])


@register_content("GatherV2")
def gather(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content, index = inputs[0].content, inputs[1].content
    if content is None or content.ndim != 1 or integers(inputs[1]) is None:
        return None
    part = content[index.astype(int)]
    return with_content(part if isinstance(part, np.ndarray) else object_array(part))


@register_content("Unpack", "Split", "SplitV")
def parts(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value] | None:
    content = inputs[1 if op.type == "Split" else 0].content
    if content is None or content.ndim != 1:
        return None
    if op.type == "Unpack":
        return [with_content(object_array(entry)) for entry in content.tolist()]
    sizes = [len(content) // len(op.outputs)] * len(op.outputs)
    if op.type == "SplitV":
        sizes = integers(inputs[1])
        if sizes is None or -1 in sizes:
            return None
    ends = np.cumsum(sizes)
    return [with_content(content[e - n : e]) for e, n in zip(ends, sizes, strict=True)]


@register_content("Range")
def range_(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    if not op.outputs[0].dtype.is_integer or any(v.content is None for v in inputs):
        return None
    start, limit, delta = (value.content.item() for value in inputs)
    is_short = None not in map(integers, inputs) and abs(limit - start) <= _LONGEST
    entries = object_array(list(range(start, limit, delta))) if is_short else None
    if (start, delta) == (0, 1) and limit is not None:
        return Value(Kind.CONSTANT, shape=(limit,), content=entries, counts=True)
    return None if entries is None else constant(entries.shape, entries)


@register_content("Fill")
def fill(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Its shape is known even where its entries are not."""
    sizes = inputs[0].content
    if sizes is None or None in sizes.tolist():
        return constant(frame.shape(op))
    shape = tuple(sizes.tolist())
    entry = inputs[1].content
    if entry is None or not all(isinstance(size, int) for size in shape):
        return constant(shape)
    return with_content(np.full(shape, entry.item(), dtype=object))


@register_content("Empty")
def empty(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    sizes = inputs[0].content
    is_known = sizes is not None and None not in sizes.tolist()
    return constant(tuple(sizes.tolist()) if is_known else frame.shape(op))


@register_content("OneHot")
def one_hot(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    value = inputs[0]
    if value.rank is None or frame.shape(op) is None:
        return None
    axis = op.get_attr("axis") % (value.rank + 1)
    shape = list(value.shape)
    shape.insert(axis, one_hot_depth(op, inputs, frame, axis))
    return constant(tuple(shape))


@register_content("TensorScatterAdd", "TensorScatterUpdate")
def scatter(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return constant(inputs[0].shape)


@register_content("Reshape")
def reshape(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, wanted = inputs
    shape = None if value.shape is None else target_shape(op, value, wanted)
    if shape is None or value.content is None:
        return constant(frame.shape(op) if shape is None else shape)
    if not all(isinstance(size, int) for size in shape):
        return constant(shape)
    return with_content(value.content.reshape(shape))


@register_content("ExpandDims")
def expand_dims(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value | None:
    content, axis = inputs[0].content, integers(inputs[1])
    if content is None or axis is None:
        return None
    return with_content(np.expand_dims(content, axis[0]))


@register_content("Squeeze")
def squeeze(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content = inputs[0].content
    if content is None:
        return None
    axes = tuple(op.get_attr("squeeze_dims")) or None
    return with_content(np.asarray(np.squeeze(content, axes), dtype=object))


@register_content("ReverseV2")
def reverse(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content = inputs[0].content
    if content is None or content.ndim != 1 or integers(inputs[1]) not in ([0], [-1]):
        return None
    return with_content(content[::-1])


@register_content("BroadcastArgs")
def broadcast_args(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value | None:
    if any(value.content is None for value in inputs):
        return None
    a, b = (value.content.tolist() for value in inputs)
    rank = max(len(a), len(b))
    a, b = ([1] * (rank - len(sizes)) + sizes for sizes in (a, b))
    return with_content(
        [
            y if x == 1 else x if y == 1 or x == y else None
            for x, y in zip(a, b, strict=True)
        ]
    )


@register_content("ZerosLike", "OnesLike")
def like(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return constant(inputs[0].shape)
