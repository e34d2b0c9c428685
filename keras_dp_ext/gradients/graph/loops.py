"""Recurrent layers: weights inside a while loop, made visible to the rules.

The gradient of a loop sums over its steps, and with that over the examples that
each step has mixed into the weights' gradient. To see the steps, the loop is
traced once more with a tap behind every op that uses a weight: a perturbation of
zeros is added to the op's output, and what the op reads is written to a list.
The gradient with respect to the perturbation is the gradient of the op's output
in every step; stacked over time, it and the recorded data are those of the same
op applied to `[batch * time, ...]`, for which there are rules.

One loop, no unrolling: the cost of tracing does not grow with the length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.uses import Use, Weight, find_uses, scan
from keras_dp_ext.gradients.registry import find_rule

# Their rules read the shape of the data only.
_ADDITIONS = frozenset({"BiasAdd", "Add", "AddV2", "Sub"})


@dataclasses.dataclass(frozen=True, eq=False)
class Tap:
    """One op inside a loop.

    Attributes:
        perturbation: `[time, batch, ...]` zeros, added to the op's output.
        make_use: From the gradient of the perturbation, batch first and flat, to
            the op as if it had been applied to all steps at once.
    """

    perturbation: tf.Tensor
    make_use: Callable[[tf.Tensor], Use]

    def as_use(self, gradient: tf.Tensor) -> tuple[Use, tf.Tensor]:
        d = _batch_major(gradient)
        return self.make_use(d), d


@dataclasses.dataclass(frozen=True)
class Unfolded:
    """A forward graph with taps in its loops.

    Attributes:
        losses: The losses, recomputed behind the tapped loops.
        taps: One for each op that uses a weight inside a loop.
        loops: The tapped loops, whose own use of the weights is thereby covered.
    """

    losses: tf.Tensor
    taps: list[Tap]
    loops: frozenset[tf.Operation]


def unfold_loops(losses: tf.Tensor, variables) -> Unfolded:
    """Taps every loop that uses a trainable variable, where this is possible."""
    uses, weights = find_uses(losses, variables)
    loops = {use.op for use in uses if use.op.type in graph_lib.LOOP_OPS}
    plans = {}
    ops = graph_lib.ancestors([losses])
    dependent = graph_lib.data_dependent(ops, losses.shape[0])
    for loop in loops:
        plan = _plan(loop, weights, dependent, losses.shape[0])
        if plan is not None:
            plans[loop] = plan
    if not plans:
        return Unfolded(losses, [], frozenset())
    taps: list[Tap] = []
    replaced: dict[int, tf.Tensor] = {}
    for op in ops:
        if op in plans:
            inputs = [replaced.get(id(tensor), tensor) for tensor in op.inputs]
            outputs, new_taps = _tapped_loop(op, inputs, plans[op])
            taps.extend(new_taps)
            for old, new in zip(op.outputs, outputs, strict=False):
                replaced[id(old)] = new
        else:
            replaced = graph_lib.copy_ops([op], replaced, only_changed=True)
    new_losses = replaced[id(losses)]
    new_losses.set_shape(losses.shape)
    return Unfolded(new_losses, taps, _tapped_loops(taps, new_losses))


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
class _Plan:
    """What is known of a loop before it is traced again."""

    cond: tf.Graph
    body: tf.Graph
    steps: int
    uses: list[Use]
    invariant: frozenset[int]


def _plan(
    loop: tf.Operation, weights: dict[int, Weight], dependent: set[int], batch
) -> _Plan | None:
    """Decides whether a loop can be tapped; `None` leaves it to the fallback."""
    cond = graph_lib.function_graph(loop, "cond")
    body = graph_lib.function_graph(loop, "body")
    steps = graph_lib.evaluate_constant(loop.inputs[1])
    if cond is None or body is None or steps is None or steps <= 0:
        return None
    invariant = graph_lib.loop_invariants(loop)
    inner_weights, inner_dependent = {}, set()
    for number, (outer, inner) in enumerate(zip(loop.inputs, body.inputs, strict=True)):
        if id(outer) in weights and number in invariant:
            inner_weights[id(inner)] = weights[id(outer)]
        elif id(outer) in weights:
            return None
        elif number not in invariant or id(outer) in dependent:
            inner_dependent.add(id(inner))
    ops = body.get_operations()
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
    return _Plan(cond, body, int(steps), uses, invariant)


def _tapped_loop(
    loop: tf.Operation, inputs: list[tf.Tensor], plan: _Plan
) -> tuple[list[tf.Tensor], list[Tap]]:
    """Traces a loop again, with a tap behind every use of a weight."""
    varying = [n for n in range(len(inputs)) if n not in plan.invariant]
    fixed = {id(plan.body.inputs[n]): inputs[n] for n in plan.invariant}
    cond_fixed = {id(plan.cond.inputs[n]): inputs[n] for n in plan.invariant}
    tapped = {use.op: number for number, use in enumerate(plan.uses)}
    batch = _batch_size(inputs, plan)
    perturbations = [
        tf.zeros(
            [plan.steps, *_with_batch(use.op.outputs[0], batch)],
            use.op.outputs[0].dtype,
        )
        for use in plan.uses
    ]
    lists = [tf.TensorArray(p.dtype, size=plan.steps).unstack(p) for p in perturbations]
    recorded = [
        None if use.op.type in _ADDITIONS else _data_index(use) for use in plan.uses
    ]
    records = [
        tf.TensorArray(use.op.inputs[index].dtype, size=plan.steps)
        for use, index in zip(plan.uses, recorded, strict=True)
        if index is not None
    ]

    def cond(step, values, records):
        del step, records
        replaced = dict(cond_fixed)
        for number, value in zip(varying, values, strict=True):
            replaced[id(plan.cond.inputs[number])] = value
        copies = graph_lib.copy_ops(_ops_for(plan.cond), replaced)
        return copies[id(plan.cond.outputs[0])]

    def body(step, values, records):
        records = list(records)
        replaced = dict(fixed)
        for number, value in zip(varying, values, strict=True):
            replaced[id(plan.body.inputs[number])] = value

        def tap(op, outputs):
            if op not in tapped:
                return outputs
            number = tapped[op]
            if recorded[number] is not None:
                slot = sum(index is not None for index in recorded[:number])
                data = outputs[0].op.inputs[recorded[number]]
                records[slot] = records[slot].write(step, data)
            return [outputs[0] + lists[number].read(step)]

        copies = graph_lib.copy_ops(_ops_for(plan.body), replaced, after=tap)
        new_values = [copies[id(plan.body.outputs[number])] for number in varying]
        return step + 1, new_values, records

    start = [inputs[number] for number in varying]
    _, values, records = tf.while_loop(
        cond,
        body,
        (tf.constant(0), start, records),
    )
    outputs = list(inputs)
    for number, value in zip(varying, values, strict=True):
        outputs[number] = value
    taps = []
    remaining = list(records)
    for use, index, perturbation in zip(
        plan.uses, recorded, perturbations, strict=True
    ):
        record = None if index is None else remaining.pop(0)
        data = None
        if record is not None:
            data = _batch_major(record.stack(), use.op.inputs[index].shape, plan.steps)
        taps.append(Tap(perturbation, _use_maker(use, data, fixed)))
    return outputs[: len(loop.outputs)], taps


def _ops_for(graph) -> list[tf.Operation]:
    """The ops that a loop's function needs for its outputs."""
    return graph_lib.ancestors(graph.outputs)


def _data_index(use: Use) -> int:
    """Which input of the op is data: the one that is not the weight."""
    (index,) = (n for n in range(len(use.op.inputs)) if n != use.index)
    return index


def _batch_size(inputs, plan: _Plan) -> tf.Tensor | int:
    """First axis of the state: the number of examples."""
    for number, tensor in enumerate(inputs):
        if number not in plan.invariant and tensor.shape.rank and tensor.shape.rank > 1:
            return tensor.shape[0] or tf.shape(tensor)[0]
    raise ValueError("A recurrent loop without a state of at least two axes.")


def _with_batch(output: tf.Tensor, batch) -> list:
    return [batch, *output.shape[1:]]


def _batch_major(value: tf.Tensor, shape=None, steps: int | None = None) -> tf.Tensor:
    """`[time, batch, ...] -> [batch * time, ...]`."""
    if shape is not None:
        value.set_shape([steps, *shape])
    value = tf.transpose(value, [1, 0, *range(2, value.shape.rank)])
    batch, time, *rest = value.shape
    first = -1 if batch is None or time is None else batch * time
    return tf.reshape(value, [first, *rest])


def _use_maker(use: Use, data: tf.Tensor | None, fixed: dict[int, tf.Tensor]):
    """The op of the loop's body, outside of it and for all steps at once."""

    def make(d: tf.Tensor) -> Use:
        copies = graph_lib.copy_ops(graph_lib.ancestors([use.weight]), fixed)
        inputs = [d if data is None else data] * 2
        inputs[use.index] = copies[id(use.weight)]
        op = graph_lib.copy_op(use.op, inputs)
        return dataclasses.replace(use, op=op)

    return make
