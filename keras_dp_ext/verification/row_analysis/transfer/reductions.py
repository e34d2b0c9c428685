"""Ops along some axes: reductions, scans, sorting, softmax, transforms, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.transfer.common import (
    along_batch,
    by_number,
    known_axes,
    needs_rank,
    only_rows,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

_REDUCTIONS = ["All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"]


@register(*_REDUCTIONS)
def reduction(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    axes = _axes_of_each_example(inputs, 1, "reduces")
    return without_axes(inputs[0], axes, op.get_attr("keep_dims"))


def _axes_of_each_example(
    inputs: Sequence[Value], which: int, verb: str
) -> Sequence[int]:
    """The axes of the first input that another one names: none is the batch's."""
    value = inputs[0]
    needs_rank(value)
    only_rows(inputs, 0)
    axes = known_axes(inputs[which], value.rank)
    if value.axis in axes:
        raise along_batch(verb)
    return axes


def without_axes(value: Value, axes: Sequence[int], keep: bool) -> Value:
    if keep:
        shape = [1 if n in axes else size for n, size in enumerate(value.shape)]
        return value.with_shape(shape)
    shape = [size for n, size in enumerate(value.shape) if n not in axes]
    before = sum(axis < value.axis for axis in set(axes))
    return value.with_shape(shape, value.axis - before)


@register("ArgMax", "ArgMin")
def argument(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    axes = _axes_of_each_example(inputs, 1, "compares")
    return without_axes(inputs[0], axes, keep=False)


@register("Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2")
def scan(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    _axes_of_each_example(inputs, 1, "moves or accumulates")
    return inputs[0].with_shape(inputs[0].shape)


@register("Roll")
def roll(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    _axes_of_each_example(inputs, 2, "moves data")
    return inputs[0].with_shape(inputs[0].shape)


@register("ReverseSequence")
def reverse_sequence(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    value, lengths = inputs
    batch_axis = op.get_attr("batch_dim")
    if value.is_constant and lengths.axis == 0:
        return frame.rows_like(lengths, op, batch_axis)
    needs_rank(value)
    if value.axis == op.get_attr("seq_dim"):
        raise along_batch("reverses")
    if lengths.has_rows and value.axis != batch_axis:
        raise along_batch("reverses")
    if lengths.has_rows and lengths.layout != value.layout:
        raise along_batch("reverses")
    return value.with_shape(value.shape)


# How many of the last axes an op looks at as a whole.
_LAST_AXES = {
    1: "Softmax LogSoftmax TopKV2 TopK FFT IFFT RFFT IRFFT BatchFFT HSVToRGB RGBToHSV "
    "AdjustHue AdjustSaturation MatrixDiag MatrixDiagV2 MatrixDiagV3 NthElement",
    2: "FFT2D IFFT2D RFFT2D IRFFT2D MatrixBandPart MatrixDeterminant MatrixDiagPart "
    "MatrixDiagPartV2 MatrixDiagPartV3 MatrixInverse Cholesky Qr Svd SelfAdjointEigV2 "
    "LogMatrixDeterminant MatrixSquareRoot MatrixExponential MatrixLogarithm Eig",
    3: "FFT3D IFFT3D RFFT3D IRFFT3D AdjustContrastv2",
}


def _register_last_axes(number: int, op_types: str) -> None:
    @register(*op_types.split())
    def last_axes(
        op: tf.Operation, inputs: Sequence[Value], frame: Frame
    ) -> list[Value]:
        only_rows(inputs, 0)
        value = inputs[0]
        needs_rank(value)
        if value.axis >= value.rank - number:
            raise along_batch("works")
        results = []
        for output in range(len(op.outputs)):
            result = frame.rows_like(value, op, value.axis, output)
            if result.shape is not None:
                # Axes before the last ones keep their sizes.
                kept = value.rank - number
                result = result.with_shape(value.shape[:kept] + result.shape[kept:])
            results.append(result)
        return results


for _number, _op_types in _LAST_AXES.items():
    _register_last_axes(_number, _op_types)


@register("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "MatrixSolve")
@register("MatrixTriangularSolve", "CholeskyGrad")
def batches_of_matrices(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value:
    only_rows(inputs, 0, 1)
    matrices = inputs[:2]
    needs_rank(*matrices)
    value = same_rows(matrices)
    rank = max(value.rank for value in matrices)
    if value.rank != rank or value.axis >= rank - 2:
        raise along_batch("works")
    return frame.rows_like(value, op, value.axis)


@register("L2Loss")
def everything(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    raise along_batch("adds up all entries, also")


@register("Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
def data_dependent_size(
    op: tf.Operation, inputs: Sequence[Value], frame: Frame
) -> Value:
    raise RowsLostError(
        "has a result whose size depends on all examples. Use `tf.where` with three "
        "arguments, or multiply by a mask."
    )


@register(
    "BatchNormWithGlobalNormalization",
    "QuantizeAndDequantize",
    "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3",
    "QuantizeAndDequantizeV4",
    "QuantizeDownAndShrinkRange",
    "RandomShuffle",
)
def across_rows(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    raise along_batch("works")


_SEGMENTS = [
    "SegmentSum",
    "SegmentSumV2",
    "SegmentMean",
    "SegmentMax",
    "SegmentMin",
    "SegmentProd",
    "SparseSegmentSum",
    "SparseSegmentMean",
    "SparseSegmentSqrtN",
    "DynamicStitch",
    "DynamicPartition",
    "ParallelDynamicStitch",
    "Bincount",
    "Histogram",
    "HistogramFixedWidth",
]


@register(*_SEGMENTS)
def by_index(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    raise by_number()


@register("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction")
def python(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    raise RowsLostError(
        "runs Python code on the whole batch, which cannot be read. Write it with "
        "TensorFlow ops."
    )
