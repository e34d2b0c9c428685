"""How many batches long the first axis of a tensor is, read off the graph.

`[batch, ...]` is one batch long, `[batch * time, ...]` is `time` batches. Shapes do not
tell while the batch is unknown, and to create the ops again with a known batch takes
as long as the forward pass took to trace. What this reading does not understand is
left to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import tensorflow as tf

Lengths = dict[int, int]

# The first axis of what they return is that of their first input.
_KEEP_FIRST_AXIS = frozenset(
    {
        *("AvgPool", "AvgPool3D", "BiasAdd", "Cast", "Conv2D", "Conv3D"),
        *("DepthwiseConv2dNative", "Elu", "Erf", "Exp", "Identity", "LeakyRelu"),
        *("Erfc", "Log", "LogSoftmax", "LogicalNot", "MaxPool", "MaxPool3D", "Neg"),
        *("Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid", "Softmax", "Softplus", "Sqrt"),
        *("Square", "StopGradient", "Tanh"),
    }
)
_ELEMENTWISE = frozenset(
    {
        *("Add", "AddV2", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual"),
        *("LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "Pow"),
        *("RealDiv", "SelectV2", "SquaredDifference", "Sub"),
    }
)


def batches_per_axis(ops: Iterable[tf.Operation], sources: Iterable) -> Lengths:
    """The length of first axes, in batches, by the id of the tensor.

    Args:
        ops: In an order in which they can run.
        sources: Tensors through which data enter, with a row for each example.
    """
    lengths = {
        id(source): 1
        for source in sources
        if source.shape.rank and source.shape[0] is None
    }
    for op in ops:
        read = _READERS.get(op.type)
        if read is None or not op.outputs or id(op.outputs[0]) in lengths:
            continue
        output = op.outputs[0]
        if not output.shape.rank or output.shape[0] is not None:
            continue
        length = read(op, lengths)
        if length is not None:
            lengths[id(output)] = length
    return lengths


def _of_first_input(op: tf.Operation, lengths: Lengths) -> int | None:
    return lengths.get(id(op.inputs[0]))


def _of_broadcast(op: tf.Operation, lengths: Lengths) -> int | None:
    """The length of any input that reaches as far as the first axis.

    Sizes that are not 1 are equal there: one that is known is that of all of them.
    """
    rank = op.outputs[0].shape.rank
    found = set()
    for tensor in op.inputs:
        if tensor.shape.rank is None:
            return None
        if tensor.shape.rank == rank and tensor.shape[0] != 1:
            found.add(lengths.get(id(tensor)))
    return _only_known(found)


def _only_known(found: set[int | None]) -> int | None:
    known = found - {None}
    return known.pop() if len(known) == 1 else None


def _of_reshape(op: tf.Operation, lengths: Lengths) -> int | None:
    length = _of_first_input(op, lengths)
    before, after = op.inputs[0].shape[1:], _sizes_after_first(op)
    if length is None or not before.is_fully_defined() or None in after:
        return None
    elements, rest = length * math.prod(before), math.prod(after)
    return elements // rest if rest and elements % rest == 0 else None


def _sizes_after_first(op: tf.Operation) -> list[int | None]:
    """The sizes of a reshaped tensor, also where `tf.tensordot` multiplies them."""
    sizes = op.outputs[0].shape.as_list()
    shape = op.inputs[1].op
    if shape.type == "Pack" and len(shape.inputs) == len(sizes):
        sizes = [
            _product_of_sizes(tensor) if size is None else size
            for size, tensor in zip(sizes, shape.inputs, strict=True)
        ]
    return sizes[1:]


def _product_of_sizes(tensor: tf.Tensor) -> int | None:
    """The value of `Prod(GatherV2(Shape(x), axes))`, if the sizes are known."""
    gather = tensor.op.inputs[0].op if tensor.op.type == "Prod" else None
    if gather is None or gather.type != "GatherV2":
        return None
    shape, axes = gather.inputs[0].op, tf.get_static_value(gather.inputs[1])
    if shape.type != "Shape" or axes is None or shape.inputs[0].shape.rank is None:
        return None
    sizes = [shape.inputs[0].shape[int(axis)] for axis in axes.flat]
    return None if None in sizes else math.prod(sizes)


def _of_matrix_product(op: tf.Operation, lengths: Lengths) -> int | None:
    return None if op.get_attr("transpose_a") else _of_first_input(op, lengths)


def _of_stacked_products(op: tf.Operation, lengths: Lengths) -> int | None:
    """Where there are several, the first axis says which of them."""
    is_stack = op.outputs[0].shape.rank > 2
    return _of_broadcast(op, lengths) if is_stack else None


def _of_transpose(op: tf.Operation, lengths: Lengths) -> int | None:
    order = tf.get_static_value(op.inputs[1])
    is_kept = order is not None and order[0] == 0
    return _of_first_input(op, lengths) if is_kept else None


def _of_reduction(op: tf.Operation, lengths: Lengths) -> int | None:
    axes = tf.get_static_value(op.inputs[1])
    rank = op.inputs[0].shape.rank
    if axes is None or rank is None or any(axis in (0, -rank) for axis in axes.flat):
        return None
    return _of_first_input(op, lengths)


def _of_lookup(op: tf.Operation, lengths: Lengths) -> int | None:
    return lengths.get(id(op.inputs[1]))


def _of_gather(op: tf.Operation, lengths: Lengths) -> int | None:
    is_of_first_axis = tf.get_static_value(op.inputs[2]) == 0
    is_plain = is_of_first_axis and not op.get_attr("batch_dims")
    return _of_lookup(op, lengths) if is_plain else None


def _of_einsum(op: tf.Operation, lengths: Lengths) -> int | None:
    inputs, _, output = op.get_attr("equation").decode().partition("->")
    found = {
        lengths.get(id(tensor))
        for tensor, letters in zip(op.inputs, inputs.split(","), strict=True)
        if output[:1] in letters[:1]
    }
    return _only_known(found) if output[:1].isalpha() else None


def _of_padding(op: tf.Operation, lengths: Lengths) -> int | None:
    paddings = tf.get_static_value(op.inputs[1])
    is_kept = paddings is not None and not paddings[0].any()
    return _of_first_input(op, lengths) if is_kept else None


def _of_join(op: tf.Operation, lengths: Lengths) -> int | None:
    *joined, axis = op.inputs
    axis, rank = tf.get_static_value(axis), op.outputs[0].shape.rank
    found = {lengths.get(id(tensor)) for tensor in joined}
    if axis is None or axis % rank == 0 or len(found) != 1:
        return None
    return found.pop()


def _of_slice(op: tf.Operation, lengths: Lengths) -> int | None:
    """Where all of the first axis is taken, one after the other."""
    strides = tf.get_static_value(op.inputs[3])
    others = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    is_kept = (
        strides is not None
        and strides[0] == 1
        and op.get_attr("begin_mask") & 1
        and op.get_attr("end_mask") & 1
        and not any(op.get_attr(name) & 1 for name in others)
    )
    return _of_first_input(op, lengths) if is_kept else None


_READERS: dict[str, Callable[[tf.Operation, Lengths], int | None]] = {
    **dict.fromkeys(_KEEP_FIRST_AXIS, _of_first_input),
    **dict.fromkeys(_ELEMENTWISE, _of_broadcast),
    **dict.fromkeys(("Max", "Mean", "Min", "Prod", "Sum"), _of_reduction),
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _of_padding),
    "BatchMatMulV2": _of_stacked_products,
    "ConcatV2": _of_join,
    "Einsum": _of_einsum,
    "GatherV2": _of_gather,
    "MatMul": _of_matrix_product,
    "Reshape": _of_reshape,
    "ResourceGather": _of_lookup,
    "StridedSlice": _of_slice,
    "Transpose": _of_transpose,
}
