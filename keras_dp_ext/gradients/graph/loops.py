"""Recurrent layers: weights inside a while loop, made visible to the rules.

The gradient of a loop sums over its steps, and with that over the examples that
each step has mixed into the weights' gradient. To see the steps, the loop is
traced once more with a tap behind every op that uses a weight: a perturbation of
zeros is added to the op's output, and what the op reads is written to a list.
The gradient with respect to the perturbation is the gradient of the op's output
in every step; stacked over time, it and the recorded data are those of the same
op applied to `[batch * time, ...]`, for which there are rules. Ops whose outputs are
just added up (`x W + h U + b` of an LSTM) have the same gradient, and share a tap.

One loop, no unrolling: the cost of tracing does not grow with the length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.constant_rows import constant_rows
from keras_dp_ext.gradients.graph.loop_plan import plan_loop
from keras_dp_ext.gradients.graph.tapped_loop import Tap, TappedLoop
from keras_dp_ext.gradients.graph.trip_count import trip_count
from keras_dp_ext.gradients.graph.uses import find_uses


@dataclasses.dataclass(frozen=True)
class Unfolded:
    """A forward graph with taps in its loops.

    Attributes:
        losses: The losses, recomputed behind the tapped loops.
        taps: One for each op that uses a weight inside a loop.
        loops: The tapped loops; the taps cover their own use of the weights.
        constants: Those that count as data: see `constant_rows.py`.
    """

    losses: tf.Tensor
    taps: list[Tap]
    loops: frozenset[tf.Operation]
    constants: list[tf.Tensor]


def unfold_loops(
    losses: tf.Tensor, variables: Sequence[Any], group: int = 1
) -> Unfolded:
    """Taps every loop that uses a trainable variable, where this is possible."""
    uses, weights = find_uses(losses, variables)
    constants = constant_rows(losses, uses, weights, group)
    if constants:
        uses, weights = find_uses(losses, variables, constants)
    loops = {use.op for use in uses if use.op.type in graph_lib.LOOP_OPS}
    plans = {}
    ops = graph_lib.ancestors([losses])
    dependent = graph_lib.data_dependent(ops, losses.shape[0], constants)
    values = _values_of_tensors(losses, ops) if loops else {}
    for loop in loops:
        plan = plan_loop(loop, weights, dependent, losses.shape[0], values)
        if plan is not None:
            plans[loop] = plan
    if not plans:
        return Unfolded(losses, [], frozenset(), constants)
    batch = _batch_size(losses, ops)
    taps: list[Tap] = []
    replaced: dict[int, tf.Tensor] = {}
    for op in ops:
        if op in plans:
            inputs = [replaced.get(id(tensor), tensor) for tensor in op.inputs]
            steps = trip_count(op, inputs, dependent)
            tapped = TappedLoop(op, inputs, plans[op], steps, batch)
            taps.extend(tapped.taps)
            for old, new in zip(op.outputs, tapped.outputs, strict=True):
                replaced[id(old)] = new
        else:
            replaced = copies_lib.copy_ops(
                [op], replaced, after=_with_shapes, only_changed=True
            )
    new_losses = replaced[id(losses)]
    new_losses.set_shape(losses.shape)
    return Unfolded(new_losses, taps, _tapped_loops(taps, new_losses), constants)


def _with_shapes(op: tf.Operation, outputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """Perturbations are zeros, so each copy has the shape of its original.

    Keras tells some shapes by `set_shape`, such as the length of a sequence that comes
    out of a loop: an op does not carry them along.
    """
    for old, new in zip(op.outputs, outputs, strict=True):
        new.set_shape(old.shape)
    return outputs


def _values_of_tensors(losses: tf.Tensor, ops: Any) -> dict[int, Any]:
    """Where the examples are, if shapes do not tell."""
    if losses.shape[0] is not None:
        return {}
    # Imported late: the analysis walks graphs with the help of this package.
    from keras_dp_ext.verification.row_analysis import values_of_tensors

    return values_of_tensors(losses, graph_lib.data_sources(ops))


def _batch_size(losses: tf.Tensor, ops: list[tf.Operation]) -> int | tf.Tensor:
    """From the data: the losses are computed from what is yet to be tapped."""
    if losses.shape[0] is not None:
        return losses.shape[0]
    sources = graph_lib.data_sources(ops)
    return tf.shape(next(source for source in sources if source.shape.rank))[0]


def _tapped_loops(taps: list[Tap], losses: tf.Tensor) -> frozenset[tf.Operation]:
    """The loops that a perturbation enters."""
    perturbations = {id(tap.perturbation) for tap in taps}
    return frozenset(
        op
        for op in graph_lib.ancestors([losses])
        if op.type in graph_lib.LOOP_OPS
        and any(
            tensor.op.type == "TensorListFromTensor"
            and id(tensor.op.inputs[0]) in perturbations
            for tensor in op.inputs
        )
    )
