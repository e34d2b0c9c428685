"""Random numbers of a model that have no seed which could be set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib


def hidden_draws(
    ops: Iterable[tf.Operation], sources: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """What is drawn without a seed that could be set, whatever the data are.

    `tf.random.normal` and `tf.nn.dropout` draw other numbers in every run. What
    depends on data (a shuffled batch, counts of a rate) is none of these: to hold it
    would hide that it mixes.
    """
    apart, _ = _draws(ops, sources)
    return [output for op in apart for output in op.outputs]


def draws_from_data(
    ops: Iterable[tf.Operation], sources: Sequence[tf.Tensor]
) -> list[tf.Operation]:
    """Ops that draw from what data say, and other numbers in every run."""
    return _draws(ops, sources)[1]


def _draws(
    ops: Iterable[tf.Operation], sources: Sequence[tf.Tensor]
) -> tuple[list[tf.Operation], list[tf.Operation]]:
    """Random ops without a seed that could be set: apart from the data, and from them."""
    dependent = {id(source) for source in sources}
    apart: list[tf.Operation] = []
    from_data: list[tf.Operation] = []
    for op in ops:
        is_dependent = op.type not in graph_lib.SHAPE_OPS and any(
            id(tensor) in dependent for tensor in op.inputs
        )
        if is_dependent:
            dependent.update(id(output) for output in op.outputs)
        if _is_random(op):
            (from_data if is_dependent else apart).append(op)
    return apart, from_data


def _is_random(op: tf.Operation) -> bool:
    return (
        graph_lib.is_stateful(op)
        and any(word in op.type for word in ("Random", "Normal", "Multinomial"))
        and not any(tensor.dtype == tf.resource for tensor in op.inputs)
    )
