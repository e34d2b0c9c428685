"""Dense layers: the weight is the right factor of a matrix product."""

import tensorflow as tf

from keras_dp_ext.gradients.contributions import OuterProducts
from keras_dp_ext.gradients.registry import register_rule


@register_rule("MatMul")
def matmul(use, d, split):
    """`[N, I] @ [I, O]`, where N is the batch or the batch times positions."""
    if use.index != 1 or use.op.get_attr("transpose_a"):
        return None
    data = use.op.inputs[0]
    return _outer(split(data), split(d, like=data), use, use.op.get_attr("transpose_b"))


@register_rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(use, d, split):
    """`[B, ..., I] @ [I, O]`: one weight for the whole batch."""
    weight = use.weight
    if use.index != 1 or use.op.get_attr("adj_x"):
        return None
    if any(size != 1 for size in weight.shape[:-2]):
        return None
    data = use.op.inputs[0]
    return _outer(
        _flat(split(data)),
        _flat(split(d, like=data)),
        use,
        use.op.get_attr("adj_y"),
    )


def _flat(value: tf.Tensor) -> tf.Tensor:
    """`[rows, positions..., features] -> [rows, all positions, features]`."""
    inner = value.shape[1:-1]
    positions = inner.num_elements() if inner.is_fully_defined() else -1
    rows = -1 if value.shape[0] is None and positions != -1 else value.shape[0]
    if rows is None:
        rows = tf.shape(value)[0]
    features = value.shape[-1] or tf.shape(value)[-1]
    return tf.reshape(value, [rows, positions, features])


def _outer(data, d, use, transposed):
    left, right = (d, data) if transposed else (data, d)
    # The weight knows how many features there are, even where the data does not.
    inputs, outputs = use.weight.shape[-2:]
    left.set_shape([None, None, inputs])
    right.set_shape([None, None, outputs])
    return OuterProducts(left, right, use.weight.shape)
