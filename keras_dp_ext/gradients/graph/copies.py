"""Copying parts of a traced graph: with other inputs, into another graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext._compat.op_creation import unshared_ops
from keras_dp_ext.gradients.graph import custom_gradients
from keras_dp_ext.gradients.graph import ops as graph_lib

_BRANCHES = frozenset({"If", "StatelessIf"})


def copy_ops(
    ops: Iterable[tf.Operation],
    replaced: dict[int, tf.Tensor],
    before: Callable[[tf.Operation, dict[int, tf.Tensor]], None] | None = None,
    after: Callable[[tf.Operation, list[tf.Tensor]], list[tf.Tensor]] | None = None,
    only_changed: bool = False,
    retrace: bool = False,
) -> dict[int, tf.Tensor]:
    """Re-creates ops in the default graph, with some tensors replaced.

    Args:
        ops: In topological order.
        replaced: From the id of a tensor to what stands for it in the copy.
        before: Called with each original op and what is replaced so far, to which it
            may add.
        after: Called with each original op and the outputs of its copy; what it
            returns stands for the outputs from then on.
        only_changed: Re-creates only ops that depend on a replaced tensor; the
            others are used as they are (the copy must be in the same graph).
        retrace: Gives loops, and branches with gradients of their own, functions of
            their own. The gradient of a loop changes its functions, so a loop that
            will be differentiated must not share them with the original.

    Returns:
        `replaced`, extended to every tensor that was copied.
    """
    graph = tf.compat.v1.get_default_graph()
    replaced = dict(replaced)
    options = {"before": before, "only_changed": only_changed, "retrace": retrace}
    for op in ops:
        if before is not None:
            before(op, replaced)
        if all(id(output) in replaced for output in op.outputs) and op.outputs:
            continue
        if only_changed and not any(id(t) in replaced for t in op.inputs):
            continue
        inputs = [replaced.get(id(t), t) for t in op.inputs]
        if retrace and op.type in graph_lib.LOOP_OPS and _body(op):
            outputs = retraced_loop(op, inputs)
        elif retrace and op.type in _BRANCHES and _has_custom_gradients(op):
            outputs = _retraced_branch(op, inputs)
        else:
            outputs = _copy_op(op, inputs, graph)
            if custom_gradients.is_custom(op):
                _give_gradient(op, outputs[0].op, replaced, options)
        if after is not None:
            outputs = after(op, outputs)
        for old, new in zip(op.outputs, outputs, strict=True):
            replaced.setdefault(id(old), new)
    return replaced


def _give_gradient(
    op: tf.Operation, copy: tf.Operation, replaced: dict[int, tf.Tensor], options: Any
) -> None:
    """Lets the gradient function of a copied op work on copied tensors."""

    def copy_of(tensor: tf.Tensor) -> tf.Tensor:
        if not graph_lib.is_symbolic(tensor):
            return tensor
        if tensor.graph is not op.graph:
            for outer, inner in tf_internals.captures_of(op.graph):
                if outer is tensor:
                    return replaced.get(id(inner), tensor)
            return tensor
        if id(tensor) not in replaced:
            # What only the gradient needs, and so was not before the results.
            missing = graph_lib.ancestors([tensor], set(replaced))
            with copy.graph.as_default():
                known = dict(replaced)
                if not options["only_changed"]:
                    starts = [one for one in missing if one.type == "Placeholder"]
                    known |= {
                        id(one.outputs[0]): tf_internals.capture(
                            copy.graph, one.outputs[0]
                        )
                        for one in starts
                    }
                replaced.update(copy_ops(missing, known, **options))
        return replaced.get(id(tensor), tensor)

    def copy_gradient(ops: Any, known: dict[int, tf.Tensor]) -> dict[int, tf.Tensor]:
        return copy_ops(ops, known, before=options["before"], retrace=True)

    gradient = custom_gradients.gradient_of_copy(op, copy_of, copy_gradient)
    tf_internals.set_gradient(copy, gradient)


def _copy_op(
    op: tf.Operation, inputs: Sequence[tf.Tensor], graph: Any
) -> list[tf.Tensor]:
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        if name not in ("_class", "_output_shapes")
    }
    if op.graph is not graph:
        for value in attributes.values():
            for name in graph_lib.function_names(value):
                _add_function(graph, op.graph, name)
    with contextlib.nullcontext() if op.type == "Const" else unshared_ops():
        copy = tf_internals.create_op_like(op, list(inputs), attributes, graph)
    return list(copy.outputs)


def copy_op(op: tf.Operation, inputs: list[tf.Tensor]) -> tf.Operation:
    """The same op in the default graph, with other inputs."""
    return _copy_op(op, inputs, tf.compat.v1.get_default_graph())[0].op


def retraced_loop(loop: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The same loop with functions of its own, in the default graph."""
    invariant = graph_lib.loop_invariants(loop)
    varying = [number for number in range(len(inputs)) if number not in invariant]

    def call(function: Any, values: Any) -> Any:
        replaced = {id(function.inputs[n]): inputs[n] for n in invariant}
        for number, value in zip(varying, values, strict=True):
            replaced[id(function.inputs[number])] = value
        return _call(function, replaced)

    shapes = loop_shapes(loop, inputs)

    def body(*values: Any) -> Any:
        outputs = call(graph_lib.function_graph(loop, "body"), values)
        for number in varying:
            outputs[number].set_shape(shapes[number])
        return [outputs[number] for number in varying]

    results = tf.while_loop(
        lambda *values: call(graph_lib.function_graph(loop, "cond"), values)[0],
        body,
        [inputs[number] for number in varying],
        shape_invariants=[shapes[number] for number in varying],
        maximum_iterations=maximum_iterations(loop, inputs),
    )
    outputs = list(inputs)
    for number, value in zip(varying, results, strict=True):
        outputs[number] = value
    return outputs[: len(loop.outputs)]


def _call(function: Any, replaced: dict[int, tf.Tensor]) -> list[tf.Tensor]:
    """The outputs of a function's graph, copied into the default graph."""
    ops = graph_lib.ancestors(function.outputs)
    copies = copy_ops(ops, replaced, retrace=True)
    return [copies[id(output)] for output in function.outputs]


def _retraced_branch(op: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The same condition with functions of its own, in the default graph."""

    def branch(attribute: str) -> Callable[[], list[tf.Tensor]]:
        function = graph_lib.function_graph(op, attribute)
        replaced = dict(zip(map(id, function.inputs), inputs[1:], strict=True))
        return lambda: _call(function, replaced)

    results = tf.cond(inputs[0], branch("then_branch"), branch("else_branch"))
    return list(results) if isinstance(results, list | tuple) else [results]


def _has_custom_gradients(op: tf.Operation) -> bool:
    graphs = graph_lib.called_graphs(op)
    return len(graphs) == 2 and any(
        custom_gradients.is_custom(inner) or _has_custom_gradients(inner)
        for graph in graphs
        for inner in graph.get_operations()
    )


def _body(loop: tf.Operation) -> Any:
    return graph_lib.function_graph(loop, "body")


def loop_shapes(loop: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.TensorShape]:
    """What a loop promises of the shape of each of its values, in every step.

    A copied op may know less of its shape than the original, which was told.
    """
    body = graph_lib.function_graph(loop, "body")
    return [
        given.shape if repr(was.shape) == repr(inside.shape) else inside.shape
        for given, was, inside in zip(inputs, loop.inputs, body.inputs, strict=True)
    ]


def maximum_iterations(
    loop: tf.Operation, inputs: list[tf.Tensor]
) -> int | tf.Tensor | None:
    """The bound with which a loop was made (`tf.while_loop(maximum_iterations=)`).

    The gradient of a loop keeps the values of every step in lists, whose size XLA
    must know. So a loop that is traced again needs the bound of the original.

    Args:
        loop: The loop; its second input is the bound, -1 for none.
        inputs: What stands for its inputs in the default graph.

    Returns:
        A number where it is known, a tensor where not yet, `None` without a bound.
    """
    bound = evaluate_constant(loop.inputs[1])
    if bound is None:
        return inputs[1]
    return None if bound < 0 else int(bound)


def evaluate_constant(tensor: tf.Tensor) -> Any:
    """The value of a tensor that depends on constants only, otherwise `None`."""
    value = tf.get_static_value(tensor)
    if value is not None:
        return value
    ops = graph_lib.ancestors([tensor])
    if any(op.type == "Placeholder" or op.op_def.is_stateful for op in ops):
        return None
    return run_once(lambda: copy_ops(ops, {})[id(tensor)])


def run_once(function: Callable[[], tf.Tensor]) -> Any:
    """The value that a function of no arguments has, outside of all graphs.

    Not by `tf.function`, which warns of functions that are traced again and again.
    """
    with tf.init_scope():
        return tf.compat.v1.wrap_function(function, [])().numpy()


def _add_function(graph: Any, source_graph: Any, name: str) -> None:
    """Makes a function of one graph known to another one."""
    function = tf_internals.find_function(source_graph, name)
    if function is not None:
        tf_internals.add_function(graph, function)
