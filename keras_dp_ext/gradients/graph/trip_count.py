"""How often a loop runs: from its bound, or by running its counters alone."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib


def counters(loop: tf.Operation) -> frozenset[int]:
    """Which of a loop's inputs decide alone how often it runs.

    Those that the condition reads, and those that these are computed from. Empty
    where they are more than counters: where the condition looks at what the loop
    computes, the number of steps is not known before it has run.
    """
    cond = graph_lib.function_graph(loop, "cond")
    body = graph_lib.function_graph(loop, "body")
    pending = _inputs_behind(cond.outputs[0], cond)
    found: set[int] = set()
    while pending:
        number = pending.pop()
        if number in found:
            continue
        if not _may_count(loop.inputs[number]):
            return frozenset()
        found.add(number)
        pending |= _inputs_behind(body.outputs[number], body)
    slices = [cond.outputs[0], *(body.outputs[number] for number in found)]
    if any(op.op_def.is_stateful for op in _slice_of(slices)):
        return frozenset()
    return frozenset(found)


def trip_count(
    loop: tf.Operation, inputs: list[tf.Tensor], dependent: Container[int]
) -> int | tf.Tensor | None:
    """An upper bound of the number of steps that does not depend on the data.

    A number where it is known while the graph is traced, which XLA needs; otherwise
    a tensor; `None` where it is known only after the loop has run.

    Args:
        loop: The loop.
        inputs: What stands for its inputs in the default graph.
        dependent: Ids of the tensors whose contents depend on the data.
    """
    bound = copies_lib.maximum_iterations(loop, inputs)
    if bound is not None:
        return None if id(loop.inputs[1]) in dependent else bound
    found = sorted(counters(loop))
    if not found or any(id(loop.inputs[number]) in dependent for number in found):
        return None
    values = {n: copies_lib.evaluate_constant(loop.inputs[n]) for n in found}
    if any(value is None for value in values.values()):
        return _count(loop, {number: inputs[number] for number in found})
    return int(copies_lib.run_once(lambda: _count(loop, values)))


def _count(loop: tf.Operation, start: dict[int, tf.Tensor]) -> tf.Tensor:
    """Runs the counters of a loop without the rest of it."""
    numbers = list(start)

    def evaluate(attribute: Any, values: Any, outputs: Any) -> Any:
        graph = graph_lib.function_graph(loop, attribute)
        replaced = {
            id(graph.inputs[number]): value
            for number, value in zip(numbers, values, strict=True)
        }
        wanted = [graph.outputs[output] for output in outputs]
        copies = copies_lib.copy_ops(_slice_of(wanted), replaced)
        return [copies[id(tensor)] for tensor in wanted]

    count, _ = tf.while_loop(
        lambda count, values: evaluate("cond", values, [0])[0],
        lambda count, values: (count + 1, evaluate("body", values, numbers)),
        (tf.constant(0), [tf.convert_to_tensor(start[n]) for n in numbers]),
    )
    return count


def _may_count(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 0 and (tensor.dtype.is_integer or tensor.dtype.is_bool)


def _slice_of(tensors: list[tf.Tensor]) -> list[tf.Operation]:
    return [op for op in graph_lib.ancestors(tensors) if op.type != "Placeholder"]


def _inputs_behind(tensor: tf.Tensor, graph: Any) -> set[int]:
    """Which inputs of a function one of its tensors is computed from."""
    ops = set(graph_lib.ancestors([tensor]))
    return {n for n, given in enumerate(graph.inputs) if given.op in ops}
