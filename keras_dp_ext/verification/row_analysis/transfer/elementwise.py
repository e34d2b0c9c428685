"""Elementwise ops: each entry of the result comes from one entry of each operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.registry import register
from keras_dp_ext.verification.row_analysis.sizes import AnySize
from keras_dp_ext.verification.row_analysis.transfer.common import (
    different_rows,
    needs_rank,
    only_rows,
    same_rows,
)
from keras_dp_ext.verification.row_analysis.values import Value, constant

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "AsString",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BesselI0",
    "BesselI0e",
    "BesselI1",
    "BesselI1e",
    "BesselJ0",
    "BesselJ1",
    "BesselK0",
    "BesselK0e",
    "BesselK1",
    "BesselK1e",
    "BesselY0",
    "BesselY1",
    "Bucketize",
    "Cast",
    "Ceil",
    "CheckNumerics",
    "CheckNumericsV2",
    "ComplexAbs",
    "Conj",
    "Cos",
    "Cosh",
    "DecodeBase64",
    "Dawsn",
    "DebugIdentityV2",
    "DeepCopy",
    "Digamma",
    "Elu",
    "EncodeBase64",
    "EnsureShape",
    "Erf",
    "Erfc",
    "Erfinv",
    "Exp",
    "Expint",
    "Expm1",
    "FakeQuantWithMinMaxArgs",
    "Floor",
    "FresnelCos",
    "FresnelSin",
    "Identity",
    "Imag",
    "Inv",
    "Invert",
    "IsFinite",
    "IsInf",
    "IsNan",
    "LeakyRelu",
    "Lgamma",
    "Log",
    "Log1p",
    "LogicalNot",
    "Ndtri",
    "Neg",
    "PlaceholderWithDefault",
    "PopulationCount",
    "PreventGradient",
    "Real",
    "Reciprocal",
    "RegexFullMatch",
    "RegexReplace",
    "Relu",
    "Relu6",
    "Rint",
    "Round",
    "Rsqrt",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Snapshot",
    "Softplus",
    "Softsign",
    "Spence",
    "Sqrt",
    "Square",
    "StaticRegexFullMatch",
    "StaticRegexReplace",
    "StopGradient",
    "StringLength",
    "StringLower",
    "StringStrip",
    "StringToHashBucket",
    "StringToHashBucketFast",
    "StringToHashBucketStrong",
    "StringToNumber",
    "StringUpper",
    "Substr",
    "Tan",
    "Tanh",
    "UnicodeScript",
    "UnicodeTranscode",
    "XlaOptimizationBarrier",
]

_BROADCAST = [
    "Add",
    "AddV2",
    "ApproximateEqual",
    "Atan2",
    "Betainc",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "ClipByValue",
    "Complex",
    "Div",
    "DivNoNan",
    "EluGrad",
    "Equal",
    "FloorDiv",
    "FloorMod",
    "Greater",
    "GreaterEqual",
    "Igamma",
    "IgammaGradA",
    "Igammac",
    "InvGrad",
    "LeakyReluGrad",
    "LeftShift",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalOr",
    "Maximum",
    "Minimum",
    "Mod",
    "Mul",
    "MulNoNan",
    "NextAfter",
    "NotEqual",
    "Polygamma",
    "Pow",
    "RealDiv",
    "ReciprocalGrad",
    "Relu6Grad",
    "ReluGrad",
    "RightShift",
    "RsqrtGrad",
    "SelectV2",
    "SeluGrad",
    "SigmoidGrad",
    "SoftplusGrad",
    "SoftsignGrad",
    "SqrtGrad",
    "SquaredDifference",
    "StringJoin",
    "Sub",
    "TanhGrad",
    "TruncateDiv",
    "TruncateMod",
    "Xdivy",
    "Xlog1py",
    "Xlogy",
    "Zeta",
    "AddN",
    "FakeQuantWithMinMaxArgsGradient",
]


@register(*_BROADCAST)
def broadcast(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Operands are aligned at their last axes: there the examples must be the same."""
    needs_rank(*inputs)
    rank = max(value.rank for value in inputs)
    aligned = [
        value.with_shape(
            (1,) * (rank - value.rank) + value.shape, value.axis + rank - value.rank
        )
        for value in inputs
    ]
    first = same_rows(aligned)
    shape = broadcast_shape([value.shape for value in aligned], frame.shape(op))
    return frame.rows(
        op, axis=first.axis, outer=first.outer, block=first.block, shape=shape
    )


def broadcast_shape(shapes: Any, otherwise: Any) -> list[AnySize]:
    """The shape of a result whose operands have the same number of axes."""
    result = []
    for axis, sizes in enumerate(zip(*shapes, strict=True)):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            # Equal in truth, or 1: if one of them is a number, it is that number.
            numbers = {size for size in wide if isinstance(size, int)}
            wide = numbers or {otherwise[axis] if otherwise else None}
        result.append(wide.pop() if wide else 1)
    return result


@register(*_UNARY)
def unary(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    only_rows(inputs, 0)
    return inputs[0].with_shape(inputs[0].shape)


@register("IdentityN")
def identity_n(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> list[Value]:
    return list(inputs)


@register("ZerosLike", "OnesLike")
def public_shape(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    return constant(inputs[0].shape)


@register("Shape", "Size", "Rank", "ShapeN")
def shape_of(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Any:
    from keras_dp_ext.verification.row_analysis.transfer import contents

    return contents.shape_of(op, inputs, frame)


@register("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", "BiasAdd")
def with_weights(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """All but the first operand are spread over all examples."""
    only_rows(inputs, 0)
    return inputs[0].with_shape(inputs[0].shape)


@register("LookupTableFindV2", "LookupTableFind")
def lookup(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    only_rows(inputs, 1)
    shape = frame.shape(op)
    keys = inputs[1]
    return keys.with_shape(keys.shape if len(shape or ()) == keys.rank else shape)


@register("Select")
def select(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value:
    """Without broadcasting; a condition `[batch]` takes whole rows of two tensors."""
    needs_rank(*inputs)
    condition, *choices = inputs
    rows = same_rows(inputs)
    if condition.rank not in (0, 1, choices[0].rank):
        raise RowsLostError("has a condition of an unknown shape.")
    if condition.rank == 0 and condition.has_rows:
        raise different_rows()
    shape = choices[0].shape
    return rows.with_shape(shape) if len(shape) else rows
