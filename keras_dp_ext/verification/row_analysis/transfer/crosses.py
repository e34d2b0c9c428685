"""Crosses of features: as many for each example as its columns say.

`tf.sparse.cross` (`HashedCrossing`) joins each value of an example's first column with
each of the second one. Of dense columns `[batch, n]` and `[batch, m]` every example has
`n * m` crosses, one example behind the other, so that the shape of the result is public.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register, register_pieces
from keras_dp_ext.verification.row_analysis.sizes import product
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    needs_rank,
)
from keras_dp_ext.verification.row_analysis.values import Kind, Value, constant

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


@register("SparseCross")
def cross(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    needs_rank(*inputs)
    if op.get_attr("N"):
        raise RowsLostError(
            "makes a number of crosses that depends on the data. Cross dense columns."
        )
    for value in inputs:
        is_in_order = value.has_rows and value.axis == 0 and value.layout == (1, 1)
        if not is_in_order or value.rank != 2:
            raise along_batch("crosses")
    name = (*frame.path, op.name)
    crosses = product(value.shape[1] for value in inputs)
    pieces = Value(Kind.PIECES, row=name)
    return [
        dataclasses.replace(pieces, role="indices"),
        dataclasses.replace(pieces, role="values"),
        constant((2,), np.array([frame.batch, crosses], dtype=object)),
    ]


@register_pieces("SparseToDense")
def dense(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Pieces at `[example, place]`: TensorFlow raises an error for a place outside."""
    index, shape, values, default = inputs
    is_fitting = index.role == "indices" and values.role == "values"
    if not is_fitting or index.row != values.row:
        raise along_batch("puts entries")
    if not shape.is_constant or shape.content is None or not default.is_constant:
        raise RowsLostError(
            "pads to the longest example of the batch. Pad to a fixed length."
        )
    sizes = shape.content.tolist()
    if len(sizes) != 2 or sizes[0] != frame.batch:
        raise along_batch("puts entries")
    return frame.rows(op, axis=0, shape=sizes)
