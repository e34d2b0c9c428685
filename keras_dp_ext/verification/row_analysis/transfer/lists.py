"""Lists of tensors, which loops read and write: steps of time, or single examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register, register_content
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    needs_rank,
    only_rows,
)
from keras_dp_ext.verification.row_analysis.transfer.control import join
from keras_dp_ext.verification.row_analysis.values import Kind, Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

_BY_EXAMPLE = -1


@register_content("TensorListReserve")
def reserve(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    number = inputs[1].content
    return Value(Kind.CONSTANT, length=None if number is None else number.item())


@register_content("EmptyTensorList")
def empty(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return Value(Kind.CONSTANT)


@register_content("TensorListFromTensor")
@register("TensorListFromTensor")
def from_tensor(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    if value.is_constant:
        length = value.shape[0] if value.rank else None
        return Value(Kind.CONSTANT, length=length)
    needs_rank(value)
    only_rows(inputs, 0)
    if value.axis == 0 and value.layout != (1, 1):
        raise along_batch("makes a list")
    part = value.with_shape(value.shape[1:], value.axis - 1)
    return dataclasses.replace(part, length=value.shape[0])


@register("TensorListStack")
def stack(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    only_rows(inputs, 0)
    value = inputs[0]
    shape = frame.shape(op)
    if shape is None:
        raise RowsLostError("stacks tensors of unknown rank.", may_hide=False)
    shape = list(shape)
    if value.length is not None:
        shape[0] = value.length
    if value.rank == len(shape) - 1:
        shape[1:] = value.shape
    axis = value.axis + 1
    return frame.rows(op, axis=axis, outer=value.outer, block=value.block, shape=shape)


@register("TensorListGetItem")
def get_item(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, index, _ = inputs
    if _is_one_row(inputs):
        return _is_one_row(inputs)
    if not index.is_constant:
        raise RowsLostError("takes an element whose number depends on the data.")
    if value.axis == _BY_EXAMPLE:
        return Value(Kind.ONE_ROW, row=_name(op.inputs[1], frame))
    shape = frame.shape(op)
    if value.rank is not None and (shape is None or len(shape) == value.rank):
        shape = value.shape
    return frame.rows(
        op, axis=value.axis, outer=value.outer, block=value.block, shape=shape
    )


@register("TensorListPopBack")
def pop_back(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    value = inputs[0]
    only_rows(inputs, 0)
    if value.axis == _BY_EXAMPLE:
        raise along_batch("takes single examples")
    shape = value.shape if value.rank is not None else frame.shape(op, 1)
    item = frame.rows(
        op, 1, axis=value.axis, outer=value.outer, block=value.block, shape=shape
    )
    return [dataclasses.replace(value, length=None), item]


@register("TensorListSetItem")
def set_item(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, index, item = inputs
    if not value.is_constant and _is_one_row(inputs):
        return _is_one_row(inputs)
    if not index.is_constant:
        raise RowsLostError("writes to a number that depends on the data.")
    if item.kind is Kind.ONE_ROW:
        return _set_example(op, value, item, frame)
    return _with_item(op, value, item, frame)


def _is_one_row(inputs: Sequence[Value]) -> Value | None:
    """The common example of all inputs that are no constants."""
    others = [value for value in inputs if not value.is_constant]
    rows = {(value.kind, value.row) for value in others}
    return others[0] if len(rows) == 1 and others[0].kind is Kind.ONE_ROW else None


def _set_example(op: tf.Operation, value: Value, item: Value, frame: Frame) -> Value:
    is_fitting = value.is_constant or (value.has_rows and value.axis == _BY_EXAMPLE)
    is_same_row = item.row == _name(op.inputs[1], frame)
    if not is_fitting or not is_same_row or value.length != frame.batch:
        raise along_batch("writes")
    return Value(Kind.ROWS, axis=_BY_EXAMPLE, length=value.length)


@register("TensorListPushBack")
def push_back(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, item = inputs
    if item.kind is Kind.ONE_ROW or value.kind is Kind.ONE_ROW:
        # Kept for a gradient, which belongs to the same example. Nobody else reads it.
        return Value(Kind.MIXED)
    return _with_item(op, value, item, frame)


def _with_item(op: tf.Operation, value: Value, item: Value, frame: Frame) -> Value:
    if value.kind is Kind.ONE_ROW or (value.has_rows and value.axis == _BY_EXAMPLE):
        if not item.is_constant:
            raise along_batch("writes")
        return value
    if item.is_constant and value.is_constant:
        return value
    length = value.length
    if value.is_constant:
        value = dataclasses.replace(item, content=None)
    joined = value if item.is_constant else join(value, item, (*frame.path, op.name))
    return dataclasses.replace(joined, length=length)


@register("TensorListElementShape")
def element_shape(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """What the gradient of a list that is read asks for. Sizes of axes are public."""
    if not inputs[0].has_rows or inputs[0].axis == _BY_EXAMPLE:
        raise along_batch("takes single examples")
    return Value(Kind.CONSTANT)


@register("TensorListLength")
def length(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return Value(Kind.CONSTANT, shape=())


def _name(index: Any, frame: Frame) -> tuple:
    """The number of an example: the same tensor has the same value in an iteration."""
    while index.op.type == "Identity":
        index = index.op.inputs[0]
    return (*frame.path, index.name)
