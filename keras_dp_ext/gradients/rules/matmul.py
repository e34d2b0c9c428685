"""Dense layers: the weight is the right factor of a matrix product."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.gradients.contributions import Contribution, OuterProducts, Rows
from keras_dp_ext.gradients.graph.uses import Use
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.row_tensors import reshaped
from keras_dp_ext.gradients.split import Split


@register_rule("MatMul")
def matmul(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`[N, I] @ [I, O]`, where N is the batch or the batch times positions."""
    if use.index != 1 or use.op.get_attr("transpose_a"):
        return None
    data = use.op.inputs[0]
    return _outer(split(data), split(d, like=data), use, use.op.get_attr("transpose_b"))


@register_rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`[B, ..., I] @ [I, O]`: one weight for the whole batch."""
    if use.index != 1 or use.op.get_attr("adj_x"):
        return _stacked(use, d, split)
    if any(size != 1 for size in use.weight.shape[:-2]):
        return _stacked(use, d, split)
    data = use.op.inputs[0]
    return _outer(
        _flat(split(data)),
        _flat(split(d, like=data)),
        use,
        use.op.get_attr("adj_y"),
    )


def _stacked(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`[B, H, T, I] @ [H, I, O]`, or with the weight in front: one matrix per head.

    So meet tables of relative positions the queries and keys of a batch.
    """
    data = use.op.inputs[1 - use.index]
    shape = split.static_shape(use.weight)
    if not shape.is_fully_defined() or data.shape.rank is None:
        return None
    aligned = [1] * (data.shape.rank - shape.rank) + shape.as_list()
    if data.shape.rank < max(3, shape.rank) or aligned[0] != 1 or split.axis(data):
        return None
    product = _weight_gradient(use, split(data), split(d, like=data))
    result = use.op.outputs[0].shape
    axes = [1] + [
        axis + 1
        for axis in range(1, result.rank - 2)
        if aligned[axis] == 1 and result[axis] != 1
    ]
    summed = tf.reduce_sum(product, axis=axes)
    return Rows(tf.reshape(summed, [-1, *shape.as_list()]), shape)


def _weight_gradient(use: Use, data: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """The gradient of one factor of a product, position by position."""
    adj_x, adj_y = use.op.get_attr("adj_x"), use.op.get_attr("adj_y")
    if use.index == 1:
        if adj_y:
            return tf.matmul(d, data, transpose_a=True, transpose_b=adj_x)
        return tf.matmul(data, d, transpose_a=not adj_x)
    if adj_x:
        return tf.matmul(data, d, transpose_a=adj_y, transpose_b=True)
    return tf.matmul(d, data, transpose_b=not adj_y)


def _flat(value: tf.Tensor) -> tf.Tensor:
    """`[rows, positions..., features] -> [rows, all positions, features]`."""
    inner = value.shape[1:-1]
    positions = inner.num_elements() if inner.is_fully_defined() else -1
    rows = -1 if value.shape[0] is None and positions != -1 else value.shape[0]
    if rows is None:
        rows = tf.shape(value)[0]
    features = value.shape[-1] or tf.shape(value)[-1]
    return reshaped(value, [rows, positions, features])


def _outer(data: tf.Tensor, d: tf.Tensor, use: Use, transposed: bool) -> Contribution:
    left, right = (d, data) if transposed else (data, d)
    # The weight knows how many features there are, even where the data does not.
    inputs, outputs = use.weight.shape[-2:]
    left.set_shape([None, None, inputs])
    right.set_shape([None, None, outputs])
    return OuterProducts(left, right, use.weight.shape)
