"""Biases, scales of normalisation layers, and other broadcast weights."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.gradients.contributions import Contribution, Rows
from keras_dp_ext.gradients.graph.uses import Use, is_repeat
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.split import Split


@register_rule("BiasAdd")
def bias_add(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """Adds a vector to the channels."""
    if use.index != 1:
        return None
    rows = split(d, like=use.op.outputs[0])
    if use.op.get_attr("data_format") == b"NCHW":
        axes = [1, *range(3, rows.shape.rank)]
    else:
        axes = list(range(1, rows.shape.rank - 1))
    return Rows(tf.reduce_sum(rows, axis=axes), use.weight.shape)


@register_rule("Add", "AddV2")
def add(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    return _reduced(use, d, split)


@register_rule("Sub")
def subtract(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    return _reduced(use, d if use.index == 0 else -d, split)


@register_rule("Mul")
def multiply(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    return _reduced(use, d * use.op.inputs[1 - use.index], split)


@register_rule("BroadcastTo", "Tile")
def broadcast(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """Repeats a weight for each example (a class token, a start state)."""
    if use.index != 0:
        return None
    shape, result = use.weight.shape, use.op.outputs[0].shape
    aligned = [1] * (result.rank - shape.rank) + shape.as_list()
    if any(size not in (1, wide) for size, wide in zip(aligned, result, strict=True)):
        return None  # A Tile that repeats more than single entries.
    if result.rank > 2 and is_repeat(use.op, split.batch):
        rows = split(tf.squeeze(d, 0))
        return Rows(tf.reshape(tf.reduce_sum(rows, 1), [-1, *shape.as_list()]), shape)
    return _reduced(use, d, split)


def _reduced(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """Sums `d` over the axes along which the weight was broadcast.

    A weight that is as long as the axis of the examples would be a weight for each
    position in the batch: no example owns it.
    """
    shape = split.static_shape(use.weight)
    result = use.op.outputs[0].shape
    if not shape.is_fully_defined() or result.rank is None or shape.rank > result.rank:
        return None
    aligned = [1] * (result.rank - shape.rank) + shape.as_list()
    examples = split.axis(use.op.outputs[0])
    if result.rank == 0 or aligned[examples] != 1:
        return None
    others = [axis for axis in range(result.rank) if axis != examples]
    if examples:
        d = tf.transpose(d, [examples, *others])
    rows = split(d, like=use.op.outputs[0], moved=True)
    axes = [1] + [
        place + 2
        for place, axis in enumerate(others)
        if aligned[axis] == 1 and result[axis] != 1
    ]
    return Rows(
        tf.reshape(tf.reduce_sum(rows, axis=axes), [-1, *shape.as_list()]), shape
    )
