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
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.constant_rows import constant_rows
from keras_dp_ext.gradients.graph.loop_plan import LoopPlan, data_index, plan_loop
from keras_dp_ext.gradients.graph.trip_count import trip_count
from keras_dp_ext.gradients.graph.uses import Use, find_uses
from keras_dp_ext.gradients.split import Split

# Their rules read the shape of the data only.
_ADDITIONS = frozenset({"BiasAdd", "Add", "AddV2", "Sub"})


@dataclasses.dataclass(frozen=True, eq=False)
class Tap:
    """One op inside a loop.

    Attributes:
        perturbation: `[time, batch, ...]` zeros, added to the op's output, or to a sum
            that has the same gradient.
        layout: How the examples lie along the second axis of the perturbation.
        make_use: From the gradient of the perturbation, batch first and flat, to
            the op as if it had been applied to all steps at once.
    """

    perturbation: tf.Tensor
    layout: _Layout
    make_use: Callable[[tf.Tensor], Use]

    def as_use(self, gradient: tf.Tensor, split: Split) -> tuple[Use, tf.Tensor]:
        d = self.layout.batch_major(gradient)
        use = self.make_use(d)
        if self.layout.positions is not None:
            data = use.op.inputs[data_index(use)]
            for tensor in (data, *use.op.outputs):
                split.declare(tensor, self.layout.positions)
        return use, d


@dataclasses.dataclass(frozen=True)
class Unfolded:
    """A forward graph with taps in its loops.

    Attributes:
        losses: The losses, recomputed behind the tapped loops.
        taps: One for each op that uses a weight inside a loop.
        loops: The tapped loops, whose own use of the weights is thereby covered.
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
            outputs, new_taps = _tapped_loop(op, inputs, plans[op], steps, batch)
            taps.extend(new_taps)
            for old, new in zip(op.outputs, outputs, strict=False):
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


@dataclasses.dataclass(frozen=True)
class _Layout:
    """`[time, batch * entries, ...]` as it comes out of a loop.

    Attributes:
        steps: The length, where it is known.
        batch: The number of examples.
        entries: How many consecutive entries belong to one example.
        shape: The rest.
    """

    steps: int | None
    batch: int | tf.Tensor
    entries: int
    shape: tf.TensorShape

    @property
    def positions(self) -> int | None:
        """How many entries an example has over all steps."""
        return None if self.steps is None else self.steps * self.entries

    def batch_major(self, value: tf.Tensor) -> tf.Tensor:
        """`[batch * time * entries, ...]`."""
        steps = tf.shape(value)[0] if self.steps is None else self.steps
        rest = [
            tf.shape(value)[axis + 2] if size is None else size
            for axis, size in enumerate(self.shape)
        ]
        value = tf.reshape(value, [steps, self.batch, self.entries, *rest])
        value = tf.transpose(value, [1, 0, *range(2, value.shape.rank)])
        return tf.reshape(value, [-1, *rest])


def _tapped_loop(
    loop: tf.Operation,
    inputs: list[tf.Tensor],
    plan: LoopPlan,
    steps: int | tf.Tensor,
    batch: int | tf.Tensor,
) -> tuple[list[tf.Tensor], list[Tap]]:
    """Traces a loop again, with a tap behind every use of a weight."""
    varying = [n for n in range(len(inputs)) if n not in plan.invariant]
    fixed = {id(plan.body.inputs[n]): inputs[n] for n in plan.invariant}
    cond_fixed = {id(plan.cond.inputs[n]): inputs[n] for n in plan.invariant}
    tapped = {use.op: number for number, use in enumerate(plan.uses)}

    def layout(tensor: tf.Tensor) -> Any:
        static = steps if isinstance(steps, int) else None
        return _Layout(static, batch, plan.examples[id(tensor)], tensor.shape[1:])

    perturbations: dict[tf.Operation, tf.Tensor] = {}
    for use, total in zip(plan.uses, plan.sums, strict=True):
        output = use.op.outputs[0]
        if total not in perturbations:
            entries = batch * plan.examples[id(output)]
            perturbations[total] = tf.zeros(
                [steps, entries, *output.shape[1:]], output.dtype
            )
    lists = {
        total: tf.TensorArray(p.dtype, size=steps).unstack(p)
        for total, p in perturbations.items()
    }
    recorded = [
        None if use.op.type in _ADDITIONS else data_index(use) for use in plan.uses
    ]
    records = [
        tf.TensorArray(
            use.op.inputs[index].dtype,
            size=steps,
            element_shape=use.op.inputs[index].shape,
        )
        for use, index in zip(plan.uses, recorded, strict=True)
        if index is not None
    ]

    def cond(step: Any, values: Any, records: Any) -> Any:
        del step, records
        replaced = dict(cond_fixed)
        for number, value in zip(varying, values, strict=True):
            replaced[id(plan.cond.inputs[number])] = value
        copies = copies_lib.copy_ops(_ops_for(plan.cond), replaced)
        return copies[id(plan.cond.outputs[0])]

    def body(step: Any, values: Any, records: Any) -> Any:
        records = list(records)
        replaced = dict(fixed)
        for number, value in zip(varying, values, strict=True):
            replaced[id(plan.body.inputs[number])] = value

        def tap(op: tf.Operation, outputs: Any) -> Any:
            number = tapped.get(op)
            if number is not None and recorded[number] is not None:
                slot = sum(index is not None for index in recorded[:number])
                # Its gradient is not needed; for it, XLA would copy whole lists.
                data = tf.stop_gradient(outputs[0].op.inputs[recorded[number]])
                records[slot] = records[slot].write(step, data)
            if op in lists:
                return [outputs[0] + lists[op].read(step)]
            return outputs

        copies = copies_lib.copy_ops(_ops_for(plan.body), replaced, after=tap)
        new_values = [copies[id(plan.body.outputs[number])] for number in varying]
        for number, value in zip(varying, new_values, strict=True):
            value.set_shape(shapes[number])
        return step + 1, new_values, records

    shapes = copies_lib.loop_shapes(loop, inputs)
    scalar = tf.TensorShape([])
    start = [inputs[number] for number in varying]
    _, values, records = tf.while_loop(
        cond,
        body,
        (tf.constant(0), start, records),
        shape_invariants=(
            scalar,
            [shapes[number] for number in varying],
            [scalar] * len(records),
        ),
        maximum_iterations=steps,
    )
    outputs = list(inputs)
    for number, value in zip(varying, values, strict=True):
        outputs[number] = value
    taps = []
    remaining = list(records)
    for use, index, total in zip(plan.uses, recorded, plan.sums, strict=True):
        data = None
        if index is not None:
            record = remaining.pop(0).stack()
            data = layout(use.op.inputs[index]).batch_major(record)
        taps.append(
            Tap(
                perturbations[total],
                layout(use.op.outputs[0]),
                _use_maker(use, data, fixed),
            )
        )
    return outputs[: len(loop.outputs)], taps


def _ops_for(graph: Any) -> list[tf.Operation]:
    """The ops that a loop's function needs for its outputs."""
    return graph_lib.ancestors(graph.outputs)


def _use_maker(use: Use, data: tf.Tensor | None, fixed: dict[int, tf.Tensor]) -> Any:
    """The op of the loop's body, outside of it and for all steps at once."""

    def make(d: tf.Tensor) -> Use:
        copies = copies_lib.copy_ops(graph_lib.ancestors([use.weight]), fixed)
        inputs = [d if data is None else data] * 2
        inputs[use.index] = copies[id(use.weight)]
        op = copies_lib.copy_op(use.op, inputs)
        return dataclasses.replace(use, op=op)

    return make
