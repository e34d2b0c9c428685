"""Embeddings: each example reads a few rows of a table."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.gradients.contributions import Contribution, Lookups, Mapped
from keras_dp_ext.gradients.graph.uses import Use
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.rules.device import integer_dtype
from keras_dp_ext.gradients.split import Split


@register_rule("GatherV2", "Gather", "ResourceGather")
def gather(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`table[indices]`, with the batch as first axis of `indices`."""
    op = use.op
    if use.index != 0 or op.get_attr("batch_dims"):
        return None
    if op.type == "GatherV2" and tf.get_static_value(op.inputs[2]) != 0:
        return None
    shape = op.outputs[0].shape[op.inputs[1].shape.rank :]
    table = use.view.shape if op.type == "ResourceGather" else tuple(use.weight.shape)
    if not shape.is_fully_defined():
        return None
    width = shape.num_elements()
    indices = op.inputs[1]
    if integer_dtype() == tf.int64:
        indices = tf.cast(indices, tf.int64)
    indices = split(indices, like=op.inputs[1])
    inner = indices.shape[1:]
    positions = inner.num_elements() if inner.is_fully_defined() else -1
    rows = split.rows
    lookups = Lookups(
        tf.reshape(indices, [rows, positions]),
        tf.reshape(d, [rows, positions, width]),
        (table[0], width),
    )
    if len(table) == 2:
        return lookups
    return Mapped(
        lookups,
        table,
        rows_map=lambda value: tf.reshape(value, [-1, *table]),
        sum_map=lambda value: tf.reshape(value, table),
        scale_map=lambda scale: tf.reshape(scale, [table[0], width]),
    )
