"""Ops that treat each entry of their first axis by itself: images, classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.sizes import product, quotient
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    integers,
    only_rows,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

# Which inputs may hold examples along their first axis.
_INPUTS = {
    (0,): "AvgPool AvgPool3D Conv Conv2D Conv3D DepthToSpace DepthwiseConv2dNative "
    "Dilation2D ExtractImagePatches ExtractVolumePatches LRN MaxPool MaxPool3D "
    "MaxPoolV2 MaxPoolWithArgmax ResizeArea ResizeBicubic ResizeBilinear "
    "ResizeNearestNeighbor ScaleAndTranslate SpaceToDepth FractionalAvgPool "
    "FractionalMaxPool DecodeRaw DecodePaddedRaw MaxPoolGradWithArgmax",
    (1,): "AvgPoolGrad AvgPool3DGrad ResizeBicubicGrad ResizeBilinearGrad",
    (
        2,
    ): "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput",
    (
        0,
        1,
    ): "LowerBound UpperBound ImageProjectiveTransformV2 ImageProjectiveTransformV3 "
    "InTopK InTopKV2 SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
    (0, 1, 2): "MaxPoolGrad MaxPool3DGrad MaxPoolGradV2",
}


def _register_batch_first(numbers: tuple[int, ...], op_types: str) -> None:
    @register(*op_types.split())
    def batch_first(
        op: tf.Operation, inputs: Sequence[Value], frame: Frame
    ) -> list[Value]:
        only_rows(inputs, *numbers)
        value = same_rows(inputs)
        if value.axis != 0:
            raise along_batch("works")
        return [
            frame.rows_like(value, op, 0, number) for number in range(len(op.outputs))
        ]


for _numbers, _op_types in _INPUTS.items():
    _register_batch_first(_numbers, _op_types)


@register("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_normalization(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> list[Value]:
    if op.get_attr("is_training"):
        raise RowsLostError("normalises by statistics of the batch.")
    only_rows(inputs, 0)
    value = inputs[0]
    if value.axis != 0:
        raise along_batch("works")
    # The other outputs are the weights, as they came in.
    first = value.with_shape(value.shape)
    others = [value.with_shape(None) for value in inputs[1:2]]
    return [first, *others * (len(op.outputs) - 1)]


@register("SpaceToBatchND")
def space_to_batch(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Dilated convolutions: `[positions * batch, ...]`, positions first."""
    only_rows(inputs, 0)
    value, blocks = inputs[0], integers(inputs[1])
    if value.axis != 0 or blocks is None:
        raise along_batch("works")
    outer = value.outer * product(blocks)
    return frame.rows(op, axis=0, outer=outer, block=value.block)


@register("BatchToSpaceND")
def batch_to_space(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    only_rows(inputs, 0)
    value, blocks = inputs[0], integers(inputs[1])
    outer = None if blocks is None else quotient(value.outer, product(blocks))
    if value.axis != 0 or outer is None:
        raise along_batch("works")
    return frame.rows(op, axis=0, outer=outer, block=value.block)


@register("DenseBincount")
def bincount(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Counts within each row of a matrix, but over all of a vector."""
    only_rows(inputs, 0, 2)
    value = same_rows(inputs)
    if value.axis != 0 or inputs[0].rank != 2:
        raise along_batch("counts")
    return frame.rows_like(value, op, 0)
