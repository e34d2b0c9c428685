"""Whether the ops of a loop can be tapped, and what has to be known for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.trip_count import counters, trip_count
from keras_dp_ext.gradients.graph.uses import Use, Weight, scan
from keras_dp_ext.gradients.registry import find_rule
from keras_dp_ext.gradients.split import ASSUMED_BATCH

# The gradient of their result is that of every operand which has its shape.
_SUMS = frozenset({"BiasAdd", "Add", "AddV2", "Identity"})


@dataclasses.dataclass(frozen=True)
class LoopPlan:
    """What is known of a loop before it is traced again.

    Attributes:
        cond: The function of the condition.
        body: The function of a step.
        uses: The ops of the body at which a weight meets data.
        examples: For the id of each output of a use, and of the data that it reads:
            how many entries of its first axis belong to one example.
        sums: For each use the op whose result has the gradient of the use's output:
            itself, or a sum of outputs.
        invariant: Which inputs every step hands on as they are.
    """

    cond: tf.Graph
    body: tf.Graph
    uses: list[Use]
    examples: dict[int, int]
    sums: list[tf.Operation]
    invariant: frozenset[int]


def plan_loop(
    loop: tf.Operation,
    weights: dict[int, Weight],
    dependent: set[int],
    batch: Any,
    values: dict[int, Any],
) -> LoopPlan | None:
    """Decides whether a loop can be tapped; `None` leaves it to the fallback.

    Args:
        loop: The loop.
        weights: The tensors that are weights.
        dependent: Ids of the tensors that depend on data.
        batch: The batch size, if static.
        values: If it is not, where the examples are in the tensors around the loop.
    """
    cond = graph_lib.function_graph(loop, "cond")
    body = graph_lib.function_graph(loop, "body")
    if cond is None or body is None:
        return None
    steps = trip_count(loop, list(loop.inputs), dependent)
    if steps is None or (isinstance(steps, int) and steps <= 0):
        return None
    invariant = graph_lib.loop_invariants(loop)
    counting = counters(loop)
    inner_weights, inner_dependent = {}, set()
    for number, (outer, inner) in enumerate(zip(loop.inputs, body.inputs, strict=True)):
        if id(outer) in weights and number in invariant:
            inner_weights[id(inner)] = weights[id(outer)]
        elif id(outer) in weights:
            return None
        elif id(outer) in dependent or number not in invariant | counting:
            inner_dependent.add(id(inner))
    ops = graph_lib.ancestors(body.outputs)
    for op in ops:
        if op.type not in graph_lib.SHAPE_OPS and any(
            id(tensor) in inner_dependent for tensor in op.inputs
        ):
            inner_dependent.update(id(output) for output in op.outputs)
    uses = scan(ops, inner_weights, inner_dependent, batch)
    if not uses or any(
        find_rule(use.op.type) is None or use.outputs != 1 for use in uses
    ):
        return None
    if len({use.op for use in uses}) != len(uses):
        return None
    fixed = {id(body.inputs[number]) for number in invariant}
    if not all(_is_fixed(use.weight, body, fixed) for use in uses):
        return None
    if batch is None:
        batch = ASSUMED_BATCH
        shapes = _shapes_for_assumed_batch(body, ops, _entries_outside(loop, values))
    else:
        shapes = {}
    examples = _entries_per_example(ops, uses, batch, shapes)
    if examples is None:
        return None
    sums = [_sum_of_outputs(use.op, body, ops, shapes) for use in uses]
    return LoopPlan(cond, body, uses, examples, sums, invariant)


def _sum_of_outputs(
    op: tf.Operation, body: Any, ops: Iterable[tf.Operation], shapes: Any
) -> tf.Operation:
    """The last sum on the way of an op's output that goes into nothing else."""
    needed, results = set(ops), {id(tensor) for tensor in body.outputs}
    while True:
        output = op.outputs[0]
        users = [user for user in output.consumers() if user in needed]
        if id(output) in results or len(users) != 1 or users[0].type not in _SUMS:
            return op
        total = users[0].outputs[0]
        of_output, of_total = (shapes.get(id(t), t.shape) for t in (output, total))
        if not of_output.is_fully_defined() or of_output != of_total:
            return op
        if sum(tensor is output for tensor in users[0].inputs) != 1:
            return op  # Added to itself.
        op = users[0]


def _is_fixed(weight: tf.Tensor, body: Any, fixed: set[int]) -> bool:
    """Whether a weight is the same in every step: no counter has changed it."""
    found = set(graph_lib.ancestors([weight]))
    return all(id(given) in fixed for given in body.inputs if given.op in found)


def _entries_per_example(
    ops: Iterable[tf.Operation], uses: Any, batch: int, shapes: Any
) -> dict[int, int] | None:
    """See `LoopPlan.examples`; `None` where that is not known."""
    if any(op.type == "SpaceToBatchND" for op in ops):
        return None  # A dilation: blocks of an image are outer to the batch.
    found = {}
    for use in uses:
        output = use.op.outputs[0]
        # A perturbation is made before the loop, where only what is static is known.
        if not output.shape.rank or None in output.shape[1:].as_list():
            return None
        for tensor in (output, use.op.inputs[data_index(use)]):
            shape = shapes.get(id(tensor), tensor.shape)
            if not shape.rank:
                return None
            first = shape[0] if shape[0] is not None else batch
            if first % batch:
                return None
            found[id(tensor)] = first // batch
    return found


def _entries_outside(loop: tf.Operation, values: dict[int, Any]) -> int:
    """How many entries of an axis of examples belong to one, before the loop.

    A model may look at each road of a map, or each stock of a market, as if it were an
    example: `[batch * roads, time, ...]`.
    """
    blocks = {
        value.block
        for value in (values.get(id(tensor)) for tensor in loop.inputs)
        if value is not None and value.has_rows and value.outer == 1
    }
    (block,) = blocks if len(blocks) == 1 else (1,)
    return block if isinstance(block, int) else 1


def _shapes_for_assumed_batch(
    body: Any, ops: Iterable[tf.Operation], entries: int
) -> dict[int, tf.TensorShape]:
    """Static shapes inside the body, if the batch were `ASSUMED_BATCH`."""

    def assumed(tensor: tf.Tensor) -> Any:
        shape = tensor.shape
        if shape.rank and shape[0] is None:
            shape = tf.TensorShape([ASSUMED_BATCH * entries, *shape[1:]])
        return tf.compat.v1.placeholder(tensor.dtype, shape)

    with tf_internals.scratch_graph("shapes").as_default():
        # What is read from a list has rows for examples, too; a copied handle does
        # not know the shape of its variable.
        reads = ("TensorListGetItem", "ReadVariableOp")
        given = [op.outputs[0] for op in ops if op.type in reads]
        replaced = {id(t): assumed(t) for t in (*body.inputs, *given)}
        copies = copies_lib.copy_ops(ops, replaced)
    return {tensor: copy.shape for tensor, copy in copies.items()}


def data_index(use: Use) -> int:
    """Which input of the op is data: the one that is not the weight."""
    (index,) = (n for n in range(len(use.op.inputs)) if n != use.index)
    return index
