"""Where the trainable variables meet the data in a forward graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph import views

# Ops that give a weight a batch axis without looking at any data.
_BROADCASTS = frozenset({"BroadcastTo", "Tile"})


@dataclasses.dataclass(frozen=True, eq=False)
class Use:
    """One op that combines a weight with data.

    Attributes:
        op: The op.
        index: Which of its inputs the weight is.
        variables: Indices of the variables that the weight is made of.
        view: How the weight is arranged, if it is a rearrangement of a single
            variable; `None` if it is computed from variables (LoRA, weight
            normalisation, a position table).
        outputs: How many outputs the op had when it was found: `tf.gradients` adds
            some to the call of a function.
    """

    op: tf.Operation
    index: int
    variables: tuple[int, ...]
    view: views.View | None
    outputs: int

    @property
    def weight(self) -> tf.Tensor:
        return self.op.inputs[self.index]


@dataclasses.dataclass(frozen=True)
class Weight:
    """A tensor that is made of variables alone; see `Use`."""

    variables: frozenset[int]
    view: views.View | None


def find_uses(
    losses: tf.Tensor, variables: Sequence[Any], constants: Sequence[tf.Tensor] = ()
) -> tuple[list[Use], dict[int, Weight]]:
    """All ops on the way to `losses` at which a weight meets the data.

    Args:
        losses: `[batch]`.
        variables: The weights.
        constants: Those that count as data: see `constant_rows.py`.

    Returns:
        The uses, and for the id of each tensor that is a weight, what it is.
    """
    ops = graph_lib.ancestors([losses])
    weights = {}
    handles = graph_lib.handles_in_graph(variables, losses.graph)
    for number, handle in enumerate(handles):
        if handle is not None:
            view = views.View(tuple(variables[number].shape))
            weights[id(handle)] = Weight(frozenset([number]), view)
    dependent = graph_lib.data_dependent(ops, losses.shape[0], constants)
    return scan(ops, weights, dependent, losses.shape[0]), weights


def scan(
    ops: Iterable[tf.Operation],
    weights: dict[int, Weight],
    dependent: set[int],
    batch: int | None,
) -> list[Use]:
    """Follows weights through ops up to where they meet data.

    Args:
        ops: In topological order.
        weights: The weights that are known so far; extended in place.
        dependent: Ids of the tensors that depend on data.
        batch: The batch size, if static.
    """
    uses: list[Use] = []
    # What a weight becomes that was repeated for each example: rows, like data.
    repeated: set[int] = set()
    for op in ops:
        if op.type in graph_lib.SHAPE_OPS:
            continue
        has_rows = any(id(tensor) in repeated for tensor in op.inputs)
        if has_rows:
            repeated.update(id(output) for output in op.outputs)
        found = [
            (index, weights[id(tensor)])
            for index, tensor in enumerate(op.inputs)
            if id(tensor) in weights
        ]
        if not found:
            continue
        meets_data = has_rows or any(id(output) in dependent for output in op.outputs)
        is_repeated = not meets_data and adds_batch_axis(op, batch)
        if is_repeated:
            repeated.update(id(output) for output in op.outputs)
        if meets_data or is_repeated or _starts_from_zeros(op, found, batch):
            uses.extend(
                Use(
                    op,
                    index,
                    tuple(sorted(weight.variables)),
                    weight.view,
                    len(op.outputs),
                )
                for index, weight in found
            )
            continue
        derived = _derived(op, found)
        for output in op.outputs:
            weights[id(output)] = derived
    return uses


def _derived(op: tf.Operation, found: list[tuple[int, Weight]]) -> Weight:
    """What an op makes of weights alone."""
    view = None
    if len(found) == 1 and found[0][0] == 0 and found[0][1].view is not None:
        view = views.extend(found[0][1].view, op)
    return Weight(frozenset().union(*(weight.variables for _, weight in found)), view)


def adds_batch_axis(op: tf.Operation, batch: int | None) -> bool:
    """Whether an op repeats something that no data reach for each example."""
    if op.type not in _BROADCASTS:
        return False
    rows_in, rows_out = op.inputs[0].shape, op.outputs[0].shape
    if is_repeat(op, batch):
        return True
    if rows_out.rank is None or rows_out.rank == 0 or rows_out[0] != batch:
        return False
    return rows_in.rank != rows_out.rank or rows_in[0] == 1


def is_repeat(op: tf.Operation, batch: int | None) -> bool:
    """Whether this is the inner part of `tf.repeat(weight[None], batch, axis=0)`.

    `[1, 1, ...]` becomes `[1, batch, ...]`, and that `[batch, ...]`.
    """
    rows_in, rows_out = op.inputs[0].shape, op.outputs[0].shape
    if rows_in.rank is None or rows_in.rank != rows_out.rank or rows_in.rank < 3:
        return False
    if rows_in[:2].as_list() != [1, 1] or rows_out[:2].as_list() != [1, batch]:
        return False
    joined = [join.outputs[0].shape for join in joins_of_repeat(op)]
    return any(shape.rank and shape[0] == batch for shape in joined)


def joins_of_repeat(op: tf.Operation) -> list[tf.Operation]:
    """What makes one axis of an axis and its repetitions: see `is_repeat`."""
    return [user for user in op.outputs[0].consumers() if user.type == "Reshape"]


def _starts_from_zeros(
    op: tf.Operation, found: list[tuple[int, Weight]], batch: int | None
) -> bool:
    """Whether rows of constants, one for each example, meet a weight.

    So does an unrolled recurrent layer begin: with a state of zeros.
    """
    if op.type != "MatMul" or [index for index, _ in found] != [1]:
        return False
    rows = op.inputs[0]
    if rows.shape.rank is None or rows.shape[0] != batch:
        return False
    if batch is None:
        return True
    # A constant that happens to be as long as the batch is not an example's.
    value = tf.get_static_value(rows)
    return value is not None and not value.any()
