"""One loop with a tap behind every op that uses a weight; see `loops.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.loop_plan import LoopPlan, data_index
from keras_dp_ext.gradients.graph.uses import Use
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


class TappedLoop:
    """Traces a loop again: weights are uses that the rules know, for all steps at once.

    Args:
        loop: The loop.
        inputs: What it is given now.
        plan: Which of its ops use weights.
        steps: How often it runs.
        batch: The number of examples.

    Attributes:
        outputs: In place of those of the loop.
        taps: One for each op that uses a weight.
    """

    def __init__(
        self,
        loop: tf.Operation,
        inputs: list[tf.Tensor],
        plan: LoopPlan,
        steps: int | tf.Tensor,
        batch: int | tf.Tensor,
    ):
        self._plan, self._steps, self._batch = plan, steps, batch
        self._varying = [n for n in range(len(inputs)) if n not in plan.invariant]
        self._fixed = {id(plan.body.inputs[n]): inputs[n] for n in plan.invariant}
        self._fixed_of_cond = {
            id(plan.cond.inputs[n]): inputs[n] for n in plan.invariant
        }
        self._shapes = copies_lib.loop_shapes(loop, inputs)
        self._perturbations = self._zeros()
        self._lists = {
            op: tf.TensorArray(zeros.dtype, size=steps).unstack(zeros)
            for op, zeros in self._perturbations.items()
        }
        # For each use the number of the input that is recorded, if any.
        self._recorded = [
            None if use.op.type in _ADDITIONS else data_index(use) for use in plan.uses
        ]
        values, records = self._run(inputs)
        outputs = list(inputs)
        for number, value in zip(self._varying, values, strict=True):
            outputs[number] = value
        self.outputs = outputs[: len(loop.outputs)]
        self.taps = self._taps(records)

    def _zeros(self) -> dict[tf.Operation, tf.Tensor]:
        """For each sum of uses, zeros to add to it in all steps."""
        zeros: dict[tf.Operation, tf.Tensor] = {}
        for use, total in zip(self._plan.uses, self._plan.sums, strict=True):
            output = use.op.outputs[0]
            if total not in zeros:
                entries = self._batch * self._plan.examples[id(output)]
                shape = [self._steps, entries, *output.shape[1:]]
                zeros[total] = tf.zeros(shape, output.dtype)
        return zeros

    def _run(self, inputs: list[tf.Tensor]) -> tuple[Any, Any]:
        """The varying values after the last step, and the records of all steps."""
        records = []
        for use, index in zip(self._plan.uses, self._recorded, strict=True):
            if index is not None:
                data = use.op.inputs[index]
                records.append(
                    tf.TensorArray(
                        data.dtype, size=self._steps, element_shape=data.shape
                    )
                )
        scalar = tf.TensorShape([])
        shapes = [self._shapes[number] for number in self._varying]
        start = [inputs[number] for number in self._varying]
        _, values, records = tf.while_loop(
            self._cond,
            self._body,
            (tf.constant(0), start, records),
            shape_invariants=(scalar, shapes, [scalar] * len(records)),
            maximum_iterations=self._steps,
        )
        return values, records

    def _cond(self, step: Any, values: Any, records: Any) -> Any:
        del step, records
        graph = self._plan.cond
        copies = self._copies(graph, self._fixed_of_cond, values)
        return copies[id(graph.outputs[0])]

    def _body(self, step: Any, values: Any, records: Any) -> Any:
        records = list(records)
        graph = self._plan.body
        slots = self._slots()

        def tap(op: tf.Operation, outputs: Any) -> Any:
            if op in slots:
                slot, index = slots[op]
                # Its gradient is not needed; for it, XLA would copy whole lists.
                data = tf.stop_gradient(outputs[0].op.inputs[index])
                records[slot] = records[slot].write(step, data)
            if op in self._lists:
                return [outputs[0] + self._lists[op].read(step)]
            return outputs

        copies = self._copies(graph, self._fixed, values, after=tap)
        new_values = [copies[id(graph.outputs[number])] for number in self._varying]
        for number, value in zip(self._varying, new_values, strict=True):
            value.set_shape(self._shapes[number])
        return step + 1, new_values, records

    def _slots(self) -> dict[tf.Operation, tuple[int, int]]:
        """For each recorded op, the number of its record and that of the input in it."""
        pairs = zip(self._plan.uses, self._recorded, strict=True)
        recorded = [(use.op, index) for use, index in pairs if index is not None]
        return {op: (slot, index) for slot, (op, index) in enumerate(recorded)}

    def _copies(
        self, graph: Any, fixed: dict[int, tf.Tensor], values: Any, **how: Any
    ) -> dict[int, tf.Tensor]:
        """Copies of the ops of the body or the condition, for the values of one step."""
        replaced = dict(fixed)
        for number, value in zip(self._varying, values, strict=True):
            replaced[id(graph.inputs[number])] = value
        ops = graph_lib.ancestors(graph.outputs)
        return copies_lib.copy_ops(ops, replaced, **how)

    def _taps(self, records: Sequence[tf.TensorArray]) -> list[Tap]:
        taps = []
        remaining = list(records)
        uses = zip(self._plan.uses, self._recorded, self._plan.sums, strict=True)
        for use, index, total in uses:
            data = None
            if index is not None:
                record = remaining.pop(0).stack()
                data = self._layout(use.op.inputs[index]).batch_major(record)
            taps.append(
                Tap(
                    self._perturbations[total],
                    self._layout(use.op.outputs[0]),
                    _use_maker(use, data, self._fixed),
                )
            )
        return taps

    def _layout(self, tensor: tf.Tensor) -> _Layout:
        steps = self._steps if isinstance(self._steps, int) else None
        entries = self._plan.examples[id(tensor)]
        return _Layout(steps, self._batch, entries, tensor.shape[1:])


def _use_maker(use: Use, data: tf.Tensor | None, fixed: dict[int, tf.Tensor]) -> Any:
    """The op of the loop's body, outside of it and for all steps at once."""

    def make(d: tf.Tensor) -> Use:
        copies = copies_lib.copy_ops(graph_lib.ancestors([use.weight]), fixed)
        inputs = [d if data is None else data] * 2
        inputs[use.index] = copies[id(use.weight)]
        op = copies_lib.copy_op(use.op, inputs)
        return dataclasses.replace(use, op=op)

    return make
