"""Exact per-example gradients for ops that have no rule.

The forward graph is run again for one microbatch at a time, and differentiated:
correct whatever the ops are, and linear in the batch, but without the speed of a
batch. Where the graph cannot be cut to one microbatch (a shape that depends on the
batch in a way that is not understood), every microbatch is differentiated through
the whole batch instead, which costs O(batch^2). Both are verified by the probe.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients import graph as graph_lib
from keras_dp_ext.gradients.uses import Use

# Which inputs of an op are shapes, with the batch as their first entry.
_SHAPE_INPUTS = {
    "BroadcastTo": (1,),
    "Fill": (0,),
    "Reshape": (1,),
    "TensorListFromTensor": (1,),
    "TensorListReserve": (0,),
    "TensorListStack": (1,),
    "Tile": (1,),
}


def fallback_rows(
    losses: tf.Tensor, variables: Sequence, group: int, uses: Sequence[Use]
) -> list[tf.Tensor]:
    """`[rows, *shape]` gradients for each variable.

    Args:
        losses: `[batch]`.
        variables: Those of which some use has no rule.
        group: Examples per microbatch.
        uses: For each variable, the use that has no rule; for the warning.
    """
    where = ", ".join(
        f"`{getattr(variable, 'path', variable.name)}` (op {use.op.type}, {use.op.name})"
        for variable, use in zip(variables, uses, strict=True)
    )
    try:
        rows = _one_microbatch_at_a_time(losses, variables, group)
        cost = "one microbatch at a time: exact, but slow"
    except (ValueError, TypeError, tf.errors.InvalidArgumentError):
        rows = _through_the_whole_batch(losses, variables, group)
        cost = "each through the whole batch: exact, but O(batch^2)"
    warnings.warn(
        "No fast per-example gradient rule covers "
        f"{where}. Their gradients are computed {cost}. See "
        "`keras_dp_ext.gradients.register_rule` to add a rule.",
        stacklevel=2,
    )
    return rows


def _one_microbatch_at_a_time(losses, variables, group):
    graph = losses.graph
    ops = graph_lib.ancestors([losses])
    batch = losses.shape[0]
    handles = [graph_lib.handle_in_graph(variable, graph) for variable in variables]
    batched = _batched_inputs(ops, batch)
    count = tf.shape(losses)[0] // group

    def gradients_of(number):
        start = number * group
        replaced = {id(tensor): _rows(tensor, start, group) for tensor in batched}
        # Through an identity, so that whatever reads the variable is copied, too.
        own_handles = [tf.identity(handle) for handle in handles]
        replaced.update(zip(map(id, handles), own_handles, strict=True))
        copies = _copy_for_rows(ops, replaced, batch, group)
        found = tf.gradients(tf.reduce_mean(copies[id(losses)]), own_handles)
        return [
            tf.zeros(variable.shape)
            if gradient is None
            else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient, variable in zip(found, variables, strict=True)
        ]

    return tf.map_fn(
        gradients_of,
        tf.range(count),
        fn_output_signature=[
            tf.TensorSpec(variable.shape, tf.float32) for variable in variables
        ],
    )


def _batched_inputs(ops, batch: int | None) -> list[tf.Tensor]:
    """Everything with a row for each example that the graph starts from: data,
    random draws, and (for a static batch) constants such as an initial state."""
    found = [
        source for source in graph_lib.data_sources(ops, batch) if source.shape.rank
    ]
    for op in ops:
        for output in op.outputs:
            if ("Random" in op.type and output.shape.rank) or (
                op.type in ("Const", "Fill")
                and batch is not None
                and output.dtype.is_floating
                and (output.shape.rank or 0) > 1
                and output.shape[0] == batch
            ):
                found.append(output)
    return found


def _rows(tensor: tf.Tensor, start: tf.Tensor, size: int) -> tf.Tensor:
    rank = tensor.shape.rank
    # XLA needs to see the size: a slice, not a range of indices.
    return tf.slice(tensor, [start] + [0] * (rank - 1), [size] + [-1] * (rank - 1))


def _copy_for_rows(ops, replaced, batch: int | None, group: int):
    """Copies what depends on the data; static shapes get the smaller batch."""
    replaced = dict(replaced)
    for op in ops:
        if batch is not None:
            for position in _SHAPE_INPUTS.get(op.type, ()):
                _shrink(op.inputs[position], replaced, batch, group)
        replaced = graph_lib.copy_ops(
            [op], replaced, only_changed=True, retrace_loops=True
        )
    return replaced


def _shrink(shape: tf.Tensor, replaced, batch: int, group: int) -> None:
    """A constant shape whose first entry counts examples counts fewer of them."""
    value = tf.get_static_value(shape)
    if value is None or np.ndim(value) != 1 or not len(value):
        return
    if value[0] > 0 and value[0] % batch == 0:
        value = np.array(value)
        value[0] = value[0] // batch * group
        replaced[id(shape)] = tf.constant(value)


def _through_the_whole_batch(losses, variables, group):
    handles = [
        graph_lib.handle_in_graph(variable, losses.graph) for variable in variables
    ]
    means = tf.reduce_mean(tf.reshape(losses, [-1, group]), axis=1)

    def gradients_of(number):
        found = tf.gradients(means[number], handles)
        return [
            tf.zeros(variable.shape)
            if gradient is None
            else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient, variable in zip(found, variables, strict=True)
        ]

    return tf.vectorized_map(gradients_of, tf.range(tf.shape(means)[0]))
