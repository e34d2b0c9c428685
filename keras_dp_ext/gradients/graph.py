"""Reading a traced TensorFlow graph: reachability, data dependence, copying."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tensorflow as tf

# Ops whose result tells the shape of their input, never its contents.
SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})

# Ops that bring data into a graph other than through its arguments.
DATA_OPS = frozenset(
    {
        "IteratorGetNext",
        "IteratorGetNextSync",
        "OptionalGetValue",
        "PyFunc",
        "EagerPyFunc",
        "PyFuncStateless",
    }
)

ASSIGN_OPS = frozenset(
    {
        "AssignVariableOp",
        "AssignAddVariableOp",
        "AssignSubVariableOp",
        "ResourceScatterAdd",
        "ResourceScatterUpdate",
        "ResourceScatterNdUpdate",
        "ResourceStridedSliceAssign",
    }
)


def is_symbolic(tensor: tf.Tensor) -> bool:
    return not hasattr(tensor, "_numpy")


def ancestors(outputs: Iterable[tf.Tensor]) -> list[tf.Operation]:
    """All ops that the outputs depend on, inputs before their consumers."""
    outputs = list(outputs)
    if not outputs:
        return []
    graph = outputs[0].graph
    seen = {output.op for output in outputs}
    pending = list(seen)
    while pending:
        for tensor in pending.pop().inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                pending.append(tensor.op)
    # A FuncGraph lists its ops in the order of creation, which is topological.
    return [op for op in graph.get_operations() if op in seen]


def captured_source(tensor: tf.Tensor) -> tf.Tensor | None:
    """The eager tensor that a captured placeholder stands for, or `None`.

    Follows nested functions: the inner function of Keras' train step captures
    from the outer one, which captures the variable's handle.
    """
    while is_symbolic(tensor):
        outer = {id(inner): external for external, inner in tensor.graph.captures}.get(
            id(tensor)
        )
        if outer is None:
            return None
        tensor = outer
    return tensor


def data_sources(ops: Iterable[tf.Operation]) -> list[tf.Tensor]:
    """The tensors through which data enters: arguments and iterator outputs."""
    sources = []
    for op in ops:
        if op.type == "Placeholder":
            if captured_source(op.outputs[0]) is None:
                sources.append(op.outputs[0])
        elif op.type in DATA_OPS:
            sources.extend(op.outputs)
    return sources


def data_dependent(ops: Iterable[tf.Operation]) -> set[int]:
    """Ids of the tensors whose *contents* depend on the data.

    Shapes do not count: the number of examples is fixed by the pipeline and
    public. Random draws do: they have a row for each example.
    """
    ops = list(ops)
    dependent = {id(source) for source in data_sources(ops)}
    for op in ops:
        if op.type in SHAPE_OPS:
            continue
        if any(id(tensor) in dependent for tensor in op.inputs) or (
            op.op_def.is_stateful and op.type.startswith("Random")
        ):
            dependent.update(id(output) for output in op.outputs)
    return dependent


def variable_handle(variable) -> tf.Tensor:
    """The resource tensor of a Keras or TensorFlow variable, in this replica."""
    variable = getattr(variable, "value", variable)
    return variable.handle


def handle_in_graph(variable, graph) -> tf.Tensor | None:
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
) -> dict[int, tf.Tensor]:
    """Re-creates ops in the default graph, with some tensors replaced.

    Args:
        ops: In topological order.
        replaced: From the id of a tensor to what stands for it in the copy.
        after: Called with each original op and the outputs of its copy; what it
            returns stands for the outputs from then on.
        only_changed: Re-creates only ops that depend on a replaced tensor; the
            others are used as they are (the copy must be in the same graph).

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
        outputs = _copy_op(op, [replaced.get(id(t), t) for t in op.inputs], graph)
        if after is not None:
            outputs = after(op, outputs)
        for old, new in zip(op.outputs, outputs, strict=True):
            replaced.setdefault(id(old), new)
    return replaced


def _copy_op(op, inputs, graph) -> list[tf.Tensor]:
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        if name not in ("_class", "_output_shapes")
    }
    if op.graph is not graph:
        for value in attributes.values():
            for name in _function_names(value):
                _add_function(graph, op.graph, name)
    # TensorFlow has no public call for "this op again, with other inputs".
    copy = graph._create_op_internal(
        op.type,
        inputs,
        dtypes=[output.dtype for output in op.outputs],
        name=op.name.split("/")[-1] or op.type,
        attrs=attributes,
        op_def=op.op_def,
    )
    return list(copy.outputs)


def _function_names(value) -> list[str]:
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func.name]
    if kind == "list":
        return [function.name for function in value.list.func]
    return []


def copy_op(op: tf.Operation, inputs: list[tf.Tensor]) -> tf.Operation:
    """The same op in the default graph, with other inputs."""
    return _copy_op(op, inputs, tf.compat.v1.get_default_graph())[0].op


def function_graph(op: tf.Operation, attribute: str):
    """The graph of one of the functions of a loop or branch, or `None`."""
    function = _find_function(op.graph, op.get_attr(attribute).name)
    return getattr(function, "graph", None)


def evaluate_constant(tensor: tf.Tensor):
    """The value of a tensor that depends on constants only, otherwise `None`."""
    value = tf.get_static_value(tensor)
    if value is not None:
        return value
    ops = ancestors([tensor])
    if any(op.type == "Placeholder" or op.op_def.is_stateful for op in ops):
        return None
    with tf.init_scope():

        @tf.function(autograph=False)
        def evaluate():
            return copy_ops(ops, {})[id(tensor)]

        return evaluate().numpy()


def called_graphs(op: tf.Operation) -> list:
    """The graphs of the functions that an op calls (loops, branches, calls)."""
    graphs = []
    for value in op.node_def.attr.values():
        for name in _function_names(value):
            function = _find_function(op.graph, name)
            if function is not None and hasattr(function, "graph"):
                graphs.append(function.graph)
    return graphs


def _find_function(graph, name: str):
    while graph is not None:
        if graph._is_function(name):
            return graph._get_function(name)
        graph = getattr(graph, "outer_graph", None)
    return None


def _add_function(graph, source_graph, name: str) -> None:
    """Makes a function of one graph known to another one."""
    function = _find_function(source_graph, name)
    if function is not None:
        graph._add_function_recursive(function)
