"""Reading a traced TensorFlow graph: reachability, data dependence, copying."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals

# Ops whose result tells the shape of their input, never its contents.
SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})

# Ops that bring data into a graph other than through its arguments.
DATA_OPS = frozenset(
    {
        "IteratorGetNext",
        "IteratorGetNextSync",
        "OptionalGetValue",
    }
)

LOOP_OPS = frozenset({"While", "StatelessWhile"})
# Others that call functions: branches, and calls themselves.
CALL_OPS = frozenset(
    {
        "Case",
        "If",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
    }
)

# What is not data itself but a way to get at some.
_HANDLES = (tf.resource, tf.variant)


def is_symbolic(tensor: tf.Tensor) -> bool:
    """Whether a tensor belongs to a graph."""
    return tf_internals.is_symbolic(tensor)


def ancestors(
    outputs: Iterable[tf.Tensor],
    stop: Container[int] = (),
    inputs_of: Callable[[tf.Operation], Iterable[tf.Tensor]] | None = None,
) -> list[tf.Operation]:
    """All ops that the outputs depend on, inputs before their consumers.

    Not in the order of creation: the gradient of a loop gives the loop new inputs.

    Args:
        outputs: Where to begin.
        stop: Ids of tensors behind which not to look: an op of which all outputs
            are among them is left out.
        inputs_of: What an op depends on; by default all of its inputs.
    """
    ordered: dict[tf.Operation, None] = {}
    entered = set()
    pending = [output.op for output in outputs if id(output) not in stop][::-1]
    while pending:
        op = pending[-1]
        if op in ordered:
            pending.pop()
        elif op in entered:
            pending.pop()
            ordered[op] = None
        else:
            entered.add(op)
            pending.extend(
                tensor.op
                for tensor in (op.inputs if inputs_of is None else inputs_of(op))
                if tensor.op not in entered and id(tensor) not in stop
            )
    return list(ordered)


def captured_source(tensor: tf.Tensor) -> tf.Tensor | None:
    """The eager tensor that a captured placeholder stands for, or `None`.

    Follows nested functions: the inner function of Keras' train step captures
    from the outer one, which captures the variable's handle.
    """
    while is_symbolic(tensor):
        outer = tf_internals.captured_from(tensor)
        if outer is None:
            return None
        tensor = outer
    return tensor


def data_sources(
    ops: Iterable[tf.Operation], batch: int | None = None
) -> list[tf.Tensor]:
    """The tensors through which data enters: arguments and iterator outputs.

    A custom loop may also close over its data. So where a graph has no arguments,
    its data are the constants that have a row for each of the `batch` examples.
    """
    ops = list(ops)
    sources = []
    for op in ops:
        if op.type == "Placeholder":
            if captured_source(op.outputs[0]) is None:
                sources.append(op.outputs[0])
        elif op.type in DATA_OPS:
            sources.extend(op.outputs)
    # An iterator that is an argument: its data are the outputs of `IteratorGetNext`.
    sources = [source for source in sources if source.dtype not in _HANDLES]
    if sources or batch is None:
        return sources
    return [op.outputs[0] for op in ops if is_constant_with_rows(op, batch)]


def is_constant_with_rows(op: tf.Operation, batch: int | None) -> bool:
    """Whether an op is a constant that has a row for each of the examples."""
    if op.type not in ("Const", "Placeholder"):
        return False
    output = op.outputs[0]
    return (
        output.dtype not in _HANDLES
        and bool(output.shape.rank)
        and batch is not None
        and output.shape[0] == batch
    )


def data_dependent(ops: Iterable[tf.Operation], batch: int | None = None) -> set[int]:
    """Ids of the tensors whose *contents* depend on the data.

    Shapes do not count: the number of examples is fixed by the pipeline and
    public. Random draws do: they have a row for each example.
    """
    ops = list(ops)
    dependent = {id(source) for source in data_sources(ops, batch)}
    for op in ops:
        if passes_data_on(op, dependent):
            dependent.update(id(output) for output in op.outputs)
    return dependent


def passes_data_on(op: tf.Operation, dependent: Container[int]) -> bool:
    """Whether the outputs of an op depend on the contents of dependent inputs."""
    if op.type in SHAPE_OPS:
        return False
    if op.op_def.is_stateful and op.type.startswith("Random"):
        return True
    return any(id(tensor) in dependent for tensor in op.inputs)


def variable_handle(variable: Any) -> tf.Tensor:
    """The resource tensor of a Keras or TensorFlow variable, in this replica."""
    variable = getattr(variable, "value", variable)
    return variable.handle


def variable_name(variable: Any) -> str:
    """The name by which errors tell a variable from others."""
    return getattr(variable, "path", None) or variable.name


def handle_in_graph(variable: Any, graph: Any) -> tf.Tensor | None:
    """The placeholder through which `graph` sees the variable, if it does."""
    wanted = variable_handle(variable)
    for external, inner in graph.captures:
        if external is wanted:
            return inner
        source = external if not is_symbolic(external) else captured_source(external)
        if source is not None and source is _eager(wanted):
            return inner
    return None


def _eager(handle: tf.Tensor) -> tf.Tensor | None:
    return handle if not is_symbolic(handle) else captured_source(handle)


def copy_ops(
    ops: Iterable[tf.Operation],
    replaced: dict[int, tf.Tensor],
    after: Callable[[tf.Operation, list[tf.Tensor]], list[tf.Tensor]] | None = None,
    only_changed: bool = False,
    retrace_loops: bool = False,
) -> dict[int, tf.Tensor]:
    """Re-creates ops in the default graph, with some tensors replaced.

    Args:
        ops: In topological order.
        replaced: From the id of a tensor to what stands for it in the copy.
        after: Called with each original op and the outputs of its copy; what it
            returns stands for the outputs from then on.
        only_changed: Re-creates only ops that depend on a replaced tensor; the
            others are used as they are (the copy must be in the same graph).
        retrace_loops: Gives loops functions of their own. The gradient of a loop
            changes its functions, so a loop that will be differentiated must not
            share them with the original.

    Returns:
        `replaced`, extended to every tensor that was copied.
    """
    graph = tf.compat.v1.get_default_graph()
    replaced = dict(replaced)
    for op in ops:
        if all(id(output) in replaced for output in op.outputs) and op.outputs:
            continue
        if only_changed and not any(id(t) in replaced for t in op.inputs):
            continue
        inputs = [replaced.get(id(t), t) for t in op.inputs]
        if retrace_loops and op.type in LOOP_OPS and function_graph(op, "body"):
            outputs = retraced_loop(op, inputs)
        else:
            outputs = _copy_op(op, inputs, graph)
        if after is not None:
            outputs = after(op, outputs)
        for old, new in zip(op.outputs, outputs, strict=True):
            replaced.setdefault(id(old), new)
    return replaced


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
            for name in _function_names(value):
                _add_function(graph, op.graph, name)
    return list(
        tf_internals.create_op_like(op, list(inputs), attributes, graph).outputs
    )


def _function_names(value: Any) -> list[str]:
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func.name]
    if kind == "list":
        return [function.name for function in value.list.func]
    return []


def copy_op(op: tf.Operation, inputs: list[tf.Tensor]) -> tf.Operation:
    """The same op in the default graph, with other inputs."""
    return _copy_op(op, inputs, tf.compat.v1.get_default_graph())[0].op


def function_graph(op: tf.Operation, attribute: str) -> Any:
    """The graph of one of the functions of a loop or branch, or `None`."""
    name = op.get_attr(attribute).name
    return tf_internals.graph_of_function(tf_internals.find_function(op.graph, name))


def loop_invariants(loop: tf.Operation) -> frozenset[int]:
    """Which inputs of a loop every iteration hands on as they are."""
    body = function_graph(loop, "body")
    return frozenset(
        number
        for number, (given, returned) in enumerate(
            zip(body.inputs, body.outputs, strict=True)
        )
        if _behind_identities(returned) is given
    )


def _behind_identities(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def retraced_loop(loop: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The same loop with functions of its own, in the default graph."""
    invariant = loop_invariants(loop)
    varying = [number for number in range(len(inputs)) if number not in invariant]

    def call(function: Any, values: Any) -> Any:
        replaced = {id(function.inputs[n]): inputs[n] for n in invariant}
        for number, value in zip(varying, values, strict=True):
            replaced[id(function.inputs[number])] = value
        copies = copy_ops(ancestors(function.outputs), replaced, retrace_loops=True)
        return [copies[id(output)] for output in function.outputs]

    shapes = loop_shapes(loop, inputs)

    def body(*values: Any) -> Any:
        outputs = call(function_graph(loop, "body"), values)
        for number in varying:
            outputs[number].set_shape(shapes[number])
        return [outputs[number] for number in varying]

    results = tf.while_loop(
        lambda *values: call(function_graph(loop, "cond"), values)[0],
        body,
        [inputs[number] for number in varying],
        shape_invariants=[shapes[number] for number in varying],
        maximum_iterations=maximum_iterations(loop, inputs),
    )
    outputs = list(inputs)
    for number, value in zip(varying, results, strict=True):
        outputs[number] = value
    return outputs[: len(loop.outputs)]


def loop_shapes(loop: tf.Operation, inputs: list[tf.Tensor]) -> list[tf.TensorShape]:
    """What a loop promises of the shape of each of its values, in every step.

    A copied op may know less of its shape than the original, which was told.
    """
    body = function_graph(loop, "body")
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
    ops = ancestors([tensor])
    if any(op.type == "Placeholder" or op.op_def.is_stateful for op in ops):
        return None
    return run_once(lambda: copy_ops(ops, {})[id(tensor)])


def run_once(function: Callable[[], tf.Tensor]) -> Any:
    """The value that a function of no arguments has, outside of all graphs.

    Not by `tf.function`, which warns of functions that are traced again and again.
    """
    with tf.init_scope():
        return tf.compat.v1.wrap_function(function, [])().numpy()


def called_graphs(op: tf.Operation) -> list:
    """The graphs of the functions that an op calls (loops, branches, calls).

    Those that are not known are left out.
    """
    graphs: list[Any] = []
    if not calls_functions(op):
        return graphs
    for value in op.node_def.attr.values():
        for name in _function_names(value):
            function = tf_internals.find_function(op.graph, name)
            graph = tf_internals.graph_of_function(function)
            if graph is not None:
                graphs.append(graph)
    return graphs


def calls_functions(op: tf.Operation) -> bool:
    """Whether an op calls functions, also such whose graphs are not known."""
    return _traits(op)[1]


def is_stateful(op: tf.Operation) -> bool:
    """Whether an op of this type may read or change what outlives it."""
    return _traits(op)[0]


def _traits(op: tf.Operation) -> tuple[bool, bool]:
    if op.type not in _TRAITS:  # Reading a definition takes long.
        definition = op.op_def
        _TRAITS[op.type] = (
            definition.is_stateful,
            any("func" in attribute.type for attribute in definition.attr),
        )
    return _TRAITS[op.type]


_TRAITS: dict[str, tuple[bool, bool]] = {}


def _add_function(graph: Any, source_graph: Any, name: str) -> None:
    """Makes a function of one graph known to another one."""
    function = tf_internals.find_function(source_graph, name)
    if function is not None:
        tf_internals.add_function(graph, function)
