"""Constant tensors of indices whose first entries are the numbers of the examples.

`scatter_nd` of an index `[row, place, ...]` leaves examples apart if `row` is the number
of the example that the update belongs to. TensorFlow's CTC loss makes such indices of
`range(batch)`, `[1, 0, 0]`, zeros and a sum; they depend on the size of the batch, which
need not be known, and on no data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.transfer.common import (
    by_number,
    integers,
    needs_rank,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.transfer.elementwise import (
    broadcast_shape,
)
from keras_dp_ext.verification.row_analysis.values import First, Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


def follow(op: tf.Operation, inputs: Sequence[Value], value: Value) -> Value:
    """A constant output, with what is known about its first entries."""
    rule = _RULES.get(op.type)
    # A smaller type would wrap around, so that two examples have one number.
    if value.first is not None or not op.outputs[0].dtype.is_integer:
        return value
    if op.outputs[0].dtype.size < 4 or any(v.rank is None for v in inputs):
        return value
    if (first := _first_of_content(value)) is not None:
        return dataclasses.replace(value, first=first)
    found = None if rule is None else rule(op, inputs)
    if found is None:
        return value
    shape, first = found
    return dataclasses.replace(value, shape=tuple(shape or value.shape), first=first)


def _first_of_content(value: Value) -> First | None:
    entries = integers(value)
    if not entries:
        return None
    if not any(entries):
        return First.ALL_ZERO
    is_tensor = value.content.ndim > 0
    return First.ZERO if is_tensor and not value.content[..., 0].any() else None


def _starts_with_zero(value: Value) -> bool:
    return value.rank > 0 and value.first in (First.ALL_ZERO, First.ZERO)


def _zeros(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    return inputs[0].shape, First.ALL_ZERO


def _pack(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    """The first of the tensors that are stacked along a new last axis."""
    first = inputs[0]
    if op.get_attr("axis") not in (-1, first.rank):
        return None
    if first.first is First.ALL_ZERO:
        return None, First.ZERO
    return (None, First.NUMBER) if first.counts else None


def _expand(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    value, place = inputs[0], integers(inputs[1])
    if place is None:
        return None
    axis = place[0] % (value.rank + 1)
    shape = [*value.shape[:axis], 1, *value.shape[axis:]]
    if value.first is First.ALL_ZERO:
        return shape, First.ALL_ZERO
    if value.counts and axis == 1:
        return shape, First.NUMBER
    if value.first is None or axis == value.rank:
        return None
    return None if value.first is First.NUMBER and axis == 0 else (shape, value.first)


def _tile(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    value, times = inputs
    if value.first is None or times.content is None:
        return None
    factors = times.content.tolist()
    if None in factors or (value.first is First.NUMBER and factors[0] != 1):
        return None
    shape = [size * n for size, n in zip(value.shape, factors, strict=True)]
    return shape, value.first


def _multiply(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    """Multiplied by a vector along the last axis whose first entry is 1 or 0."""
    for value, factor in (inputs, inputs[::-1]):
        entries = integers(factor)
        if value.first is None or factor.rank != 1 or not value.rank or not entries:
            continue
        if value.first is not First.NUMBER or entries[0] == 1:
            wide = (*[1] * (value.rank - 1), *factor.shape)
            shape = broadcast_shape([value.shape, wide], None)
            if None not in shape:
                is_number = value.first is First.NUMBER
                return shape, First.NUMBER if is_number else First.ZERO
    return None


def _add(op: tf.Operation, inputs: Sequence[Value]) -> Any:
    """Numbers and zeros, as long as it is the numbers' first axis that stays."""
    for a, b in (inputs, inputs[::-1]):
        if a.rank != b.rank or not _starts_with_zero(b) or a.first is None:
            continue
        if a.first is First.NUMBER and b.shape[0] not in (1, a.shape[0]):
            continue
        shape = broadcast_shape([a.shape, b.shape], None)
        if None not in shape:
            is_number = a.first is First.NUMBER
            return shape, First.NUMBER if is_number else First.ZERO
    return None


_RULES = {
    "AddV2": _add,
    "ExpandDims": _expand,
    "Mul": _multiply,
    "Pack": _pack,
    "Tile": _tile,
    "ZerosLike": _zeros,
}


@register("ScatterNd")
def scatter_nd(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Each example's entries get into its own row, or all examples' to one place."""
    index, updates, shape = inputs
    if not shape.is_constant or shape.content is None:
        raise by_number()
    sizes = shape.content.tolist()
    if (axis := _axis_behind(index, updates)) is not None and None not in sizes:
        return _rows_at(op, axis, sizes, updates, frame)
    _check_numbers(index, updates, frame)
    if None in sizes or sizes[0] != frame.batch:
        raise by_number()
    return frame.rows(op, axis=0, shape=sizes)


@register(
    "TensorScatterUpdate",
    "TensorScatterAdd",
    "TensorScatterSub",
    "TensorScatterMax",
    "TensorScatterMin",
)
def tensor_scatter(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    target, index, updates = inputs
    needs_rank(target)
    axis = _axis_behind(index, updates)
    if axis is None and target.has_rows and updates.is_constant:
        depth = index.shape[-1] if index.is_constant and index.rank else None
        axis = target.axis if isinstance(depth, int) and depth <= target.axis else None
    if axis is not None and target.is_constant:
        return _rows_at(op, axis, target.shape, updates, frame)
    if axis is not None and target.has_rows and target.axis == axis:
        return same_rows([target, updates.with_shape(target.shape, axis)]).with_shape(
            target.shape
        )
    _check_numbers(index, updates, frame)
    if not _is_constant_or_first(target) or target.shape[0] != frame.batch:
        raise by_number()
    return frame.rows(op, axis=0, shape=target.shape)


def _axis_behind(index: Value, updates: Value) -> int | None:
    """Where examples get to, if public numbers say places along the axes before.

    The updates of all examples are then treated alike: `loop[time] = [batch, ...]`.
    """
    needs_rank(index, updates)
    depth = index.shape[-1] if index.rank else None
    if not index.is_constant or not isinstance(depth, int) or not updates.has_rows:
        return None
    if updates.axis < index.rank - 1:
        return None
    return updates.axis - (index.rank - 1) + depth


def _rows_at(
    op: tf.Operation, axis: int, sizes: Any, updates: Value, frame: Frame
) -> Value:
    outer, block = updates.layout
    if sizes[axis] != outer * frame.batch * block:
        raise by_number()
    return frame.rows(op, axis=axis, outer=outer, block=block, shape=sizes)


def _check_numbers(index: Value, updates: Value, frame: Frame) -> None:
    """Raises unless every index begins with the number of its own example."""
    needs_rank(index, updates)
    by_data = index.has_rows and index.role == "numbered"
    by_constant = index.is_constant and index.first is First.NUMBER
    if not (by_data or by_constant) or not _is_constant_or_first(index):
        raise by_number()
    if not _is_constant_or_first(updates) or index.rank < 2:
        raise by_number()
    if index.shape[0] != frame.batch or updates.shape[0] != frame.batch:
        raise by_number()


def _is_constant_or_first(value: Value) -> bool:
    in_order = value.has_rows and value.axis == 0 and value.layout == (1, 1)
    return value.is_constant or in_order
