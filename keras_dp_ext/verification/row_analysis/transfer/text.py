"""Texts and records: pieces of examples, of which each has any number.

`tf.strings.split` gives the words of all texts, one text behind the other. `Value.row`
names the op that made them, `Value.role` tells what a tensor says about them:

- "values": an entry for each piece, which depends on its own example;
- "ids": for each piece the number of its example; "indices": with a second column;
- "shape": how many examples there are, and the most pieces of one;
- "lengths": for each example the number of its pieces (these are rows);
- "ends", "splits": sums of the lengths, without and with a zero before them;
- "ragged": pieces and splits as one tensor.

Only ops that put the pieces of each example together again make rows of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register, register_pieces
from keras_dp_ext.verification.row_analysis.transfer import elementwise
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    integers,
    only_rows,
)
from keras_dp_ext.verification.row_analysis.transfer.slices import indices
from keras_dp_ext.verification.row_analysis.values import Kind, Value, constant

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


def _pieces(name: Any, role: str) -> Value:
    return Value(Kind.PIECES, row=name, role=role)


def _check_rows(value: Value) -> None:
    if not value.has_rows or value.axis != 0 or value.layout != (1, 1):
        raise along_batch("works")


def _not_together() -> RowsLostError:
    return RowsLostError("puts pieces together that may be of different examples.")


@register("StringSplitV2", "StringSplit")
def string_split(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value]:
    only_rows(inputs, 0)
    _check_rows(inputs[0])
    name = (*frame.path, op.name)
    return [_pieces(name, role) for role in ("indices", "values", "shape")]


@register("UnicodeDecode", "UnicodeDecodeWithOffsets")
def unicode_decode(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value]:
    _check_rows(inputs[0])
    name = (*frame.path, op.name)
    values = [_pieces(name, "values")] * (len(op.outputs) - 1)
    return [_pieces(name, "splits"), *values]


@register("ParseExampleV2", "ParseExample")
def parse_example(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value]:
    only_rows(inputs, 0)
    _check_rows(inputs[0])
    if op.type == "ParseExample":
        sparse, ragged = op.get_attr("Nsparse"), 0
    else:
        sparse = op.get_attr("num_sparse")
        ragged = len(op.get_attr("ragged_value_types"))
    dense = len(op.get_attr("Tdense"))
    names = [(*frame.path, op.name, number) for number in range(sparse + ragged)]
    outputs = [
        _pieces(name, role)
        for role in ("indices", "values", "shape")
        for name in names[:sparse]
    ]
    for number in range(3 * sparse, 3 * sparse + dense):
        if not op.outputs[number].shape[1:].is_fully_defined():
            raise along_batch("pads to the longest record")
        outputs.append(frame.rows(op, number, axis=0))
    outputs += [_pieces(name, "values") for name in names[sparse:]]
    return outputs + [_pieces(name, "splits") for name in names[sparse:]]


@register_pieces(*elementwise._UNARY, *elementwise._BROADCAST)
def entry_by_entry(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """With constants that are the same for all pieces."""
    with_pieces = [value for value in inputs if not value.is_constant]
    first = with_pieces[0]
    is_alone = len(inputs) == 1 and op.type in ("Cast", "Identity", "StopGradient")
    if is_alone:
        return first
    for value in with_pieces:
        if value.kind is not Kind.PIECES or value.row != first.row:
            raise _not_together()
        if value.role not in ("values", "ids"):
            raise _not_together()
    if any(value.is_constant and value.rank != 0 for value in inputs):
        raise _not_together()
    return _pieces(first.row, "values")


@register_pieces("LookupTableFindV2")
def lookup(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    table, keys, default = inputs
    if not table.is_constant or not default.is_constant or keys.role != "values":
        raise _not_together()
    return keys


@register_pieces("StridedSlice")
def column(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """`indices[:, 0]`, the number of the example; `shape[0]`, that of all."""
    value = inputs[0]
    only_rows(inputs, 0)
    if value.role == "shape" and op.outputs[0].shape.rank == 0:
        (entry,) = indices(op, inputs, rank=1)
        if entry.start == 0:
            return constant((), np.array(frame.batch, dtype=object))
    if value.role == "indices" and op.outputs[0].shape.rank == 1:
        first, second = indices(op, inputs, rank=2)
        is_whole = first.start in (None, 0) and first.stop is None and first.step == 1
        if is_whole and second.drops and second.start == 0:
            return _pieces(value.row, "ids")
    raise _not_together()


@register_pieces("Reshape")
def flat(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    if integers(inputs[1]) != [-1] or inputs[0].role not in ("ids", "values"):
        raise _not_together()
    return inputs[0]


@register_pieces("DenseBincount")
def lengths(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    ids, size, weights = inputs
    is_count = ids.role == "ids" and weights.is_constant and weights.shape == (0,)
    if not is_count or size.content is None or size.content.item() != frame.batch:
        raise _not_together()
    if op.get_attr("binary_output"):
        raise _not_together()
    rows = frame.rows(op, axis=0)
    return dataclasses.replace(rows, row=ids.row, role="lengths")


@register_pieces("Cumsum")
def ends(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value = inputs[0]
    is_plain = not op.get_attr("exclusive") and not op.get_attr("reverse")
    if value.role != "lengths" or not is_plain or value.rank != 1:
        raise along_batch("adds up")
    return _pieces(value.row, "ends")


@register_pieces("ConcatV2")
def splits(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    first, *others, _ = inputs
    is_zero = first.is_constant and integers(first) == [0]
    if not is_zero or [value.role for value in others] != ["ends"]:
        raise _not_together()
    return _pieces(others[0].row, "splits")


@register_pieces("RaggedTensorToTensor")
def padded(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    shape, values, default, *partitions = inputs
    sizes = integers(shape)
    if not shape.is_constant or not default.is_constant or values.role != "values":
        raise _not_together()
    if sizes is None or len(sizes) < 2 or any(size < 0 for size in sizes[1:]):
        raise RowsLostError(
            "pads to the longest example of the batch. Pad to a fixed length."
        )
    if sizes[0] not in (-1, frame.batch):
        raise along_batch("takes some examples of all")
    kinds = [name.decode() for name in op.get_attr("row_partition_types")]
    roles = {
        ("FIRST_DIM_SIZE", "VALUE_ROWIDS"): [None, "ids"],
        ("ROW_SPLITS",): ["splits"],
    }.get(tuple(kinds))
    if roles is None or [value.role for value in partitions] != roles:
        raise _not_together()
    if partitions[-1].row != values.row:
        raise _not_together()
    if len(partitions) == 2:
        number = partitions[0].content
        if number is None or number.item() != frame.batch:
            raise _not_together()
    return frame.rows(op, axis=0)


@register_pieces("RaggedBincount")
def counted(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    splits, values, size, weights = inputs
    is_fitting = splits.role == "splits" and values.role == "values"
    if not is_fitting or splits.row != values.row or integers(size) is None:
        raise _not_together()
    if not weights.is_constant or weights.shape != (0,):
        raise _not_together()
    return frame.rows(op, axis=0)


@register_pieces("StringNGrams")
def n_grams(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    values, splits = inputs
    is_fitting = splits.role == "splits" and values.role == "values"
    if not is_fitting or splits.row != values.row:
        raise _not_together()
    name = (*frame.path, op.name)
    return [_pieces(name, "values"), _pieces(name, "splits")]


@register_pieces("RaggedTensorToVariant")
def to_variant(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    *splits, values = inputs
    roles = [value.role for value in splits]
    if roles != ["splits"] or values.role != "values" or splits[0].row != values.row:
        raise _not_together()
    return _pieces(values.row, "ragged")


@register_pieces("RaggedTensorFromVariant")
def from_variant(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value]:
    if inputs[0].role != "ragged" or len(op.outputs) != 2:
        raise _not_together()
    return [_pieces(inputs[0].row, "splits"), _pieces(inputs[0].row, "values")]
