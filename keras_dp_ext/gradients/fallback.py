"""Exact per-example gradients for ops that have no rule.

The forward graph is run again for one microbatch at a time, and differentiated:
correct whatever the ops are, and linear in the batch, but without the speed of a
batch. Where the graph cannot be cut to one microbatch (a shape that depends on the
batch in a way that is not understood), it is run for a whole batch of copies of the
microbatch, which costs O(batch^2). Both are verified by the probe.

Never through the batch itself: 0 times what is not finite in one example is not
finite, and would erase the gradients of all the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.uses import Use

# Which inputs of an op are shapes, with the batch as their first entry.
_SHAPE_INPUTS = {
    "BroadcastTo": (1,),
    "Conv2DBackpropInput": (0,),
    "Conv3DBackpropInputV2": (0,),
    "DepthwiseConv2dNativeBackpropInput": (0,),
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
    refused = (ValueError, TypeError, tf.errors.InvalidArgumentError)
    try:
        rows = _one_microbatch_at_a_time(losses, variables, group)
        cost = "one microbatch at a time: exact, but slow"
    except refused:
        try:
            rows = _in_a_batch_of_copies(losses, variables, group)
        except refused as error:
            raise ValueError(
                "The gradient of one example cannot be computed apart from the "
                f"others for {where}. Write the layer with ops that keep the batch "
                "as the first axis, or add a rule with "
                "`keras_dp_ext.gradients.register_rule`."
            ) from error
        cost = "each in a batch of its own copies: exact, but O(batch^2)"
    warnings.warn(
        "No fast per-example gradient rule covers "
        f"{where}. Their gradients are computed {cost}. See "
        "`keras_dp_ext.gradients.register_rule` to add a rule.",
        stacklevel=2,
    )
    return rows


def _one_microbatch_at_a_time(
    losses: tf.Tensor, variables: Sequence[Any], group: int
) -> Any:
    ops = graph_lib.ancestors([losses])
    batch = losses.shape[0]
    batched = _batched_inputs(ops, batch)

    def losses_of(start: Any, handles: Any) -> Any:
        replaced = {id(tensor): _rows(tensor, start, group) for tensor in batched}
        copies = _copy_for_rows(ops, {**replaced, **handles}, batch, group)
        return copies[id(losses)]

    return _for_every_microbatch(losses_of, losses, variables, group)


def _in_a_batch_of_copies(
    losses: tf.Tensor, variables: Sequence[Any], group: int
) -> Any:
    ops = graph_lib.ancestors([losses])
    sources = [s for s in graph_lib.data_sources(ops, losses.shape[0]) if s.shape.rank]
    draws = [
        output
        for op in ops
        if "Random" in op.type and op.op_def.is_stateful
        for output in op.outputs
    ]

    def losses_of(start: Any, handles: Any) -> Any:
        # Every example keeps its place, and so its own random draws.
        places = start + tf.range(tf.shape(losses)[0]) % group
        replaced = {id(source): tf.gather(source, places) for source in sources}
        replaced.update((id(draw), draw) for draw in draws)
        copies = copies_lib.copy_ops(
            ops,
            {**replaced, **handles},
            after=_with_shapes,
            only_changed=True,
            retrace=True,
        )
        return _rows(copies[id(losses)], start, group)

    return _for_every_microbatch(losses_of, losses, variables, group)


def _with_shapes(op: tf.Operation, copies: Any) -> Any:
    """Constants are captured here, and shapes that are made of them get lost."""
    for output, copy in zip(op.outputs, copies, strict=True):
        copy.set_shape(output.shape)
    return copies


def _for_every_microbatch(
    losses_of: Any, losses: tf.Tensor, variables: Sequence[Any], group: int
) -> Any:
    """Differentiates `losses_of(start, handles)`, the losses of one microbatch.

    `handles` stand for those of the variables, and must replace them.
    """
    handles = graph_lib.handles_in_graph(variables, losses.graph)

    def gradients_of(number: Any) -> Any:
        # Through an identity, so that whatever reads the variable is copied, too.
        own_handles = [tf.identity(handle) for handle in handles]
        own_losses = losses_of(
            number * group, dict(zip(map(id, handles), own_handles, strict=True))
        )
        found = tf.gradients(tf.reduce_mean(own_losses), own_handles)
        return [
            tf.zeros(variable.shape)
            if gradient is None
            else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient, variable in zip(found, variables, strict=True)
        ]

    return _map_fn(
        gradients_of,
        tf.range(tf.shape(losses)[0] // group),
        fn_output_signature=[
            tf.TensorSpec(variable.shape, tf.float32) for variable in variables
        ],
    )


def _map_fn(function: Any, elements: tf.Tensor, **arguments: Any) -> Any:
    """`tf.map_fn`, which leaves nothing behind where `function` raises.

    TensorFlow's own leaves a setting of the variable scope behind, and every later
    `strategy.scope()` fails.
    """
    scope = tf.compat.v1.get_variable_scope()
    before = scope.caching_device
    try:
        return tf.map_fn(function, elements, **arguments)
    finally:
        scope.set_caching_device(before)


def _batched_inputs(ops: Iterable[tf.Operation], batch: int | None) -> list[tf.Tensor]:
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


def _copy_for_rows(
    ops: Iterable[tf.Operation], replaced: Any, batch: int | None, group: int
) -> Any:
    """Copies what depends on the data; static shapes get the smaller batch."""

    shrunk: dict[int, tf.Tensor] = {}

    def shrink(op: tf.Operation, replaced: dict[int, tf.Tensor]) -> None:
        for position in _SHAPE_INPUTS.get(op.type, ()):
            shape = op.inputs[position]
            # A gradient function sees the constants outside of it as something else.
            known = replaced.get(id(shape), shape)
            if id(known) in shrunk:
                continue
            smaller = _smaller(known, batch, group)
            if smaller is not None:
                shrunk[id(smaller)] = replaced[id(shape)] = smaller

    return copies_lib.copy_ops(
        ops,
        replaced,
        before=None if batch is None else shrink,
        only_changed=True,
        retrace=True,
    )


def _smaller(shape: tf.Tensor, batch: Any, group: int) -> tf.Tensor | None:
    """For a constant shape whose first entry counts examples, one with fewer of them."""
    value = tf.get_static_value(shape)
    if value is None or np.ndim(value) != 1 or not len(value):
        return None
    if value[0] <= 0 or value[0] % batch:
        return None
    value = np.array(value)
    value[0] = value[0] // batch * group
    return tf.constant(value)
