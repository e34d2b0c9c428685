"""Reading a traced TensorFlow graph: reachability, data dependence, copying."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
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


def data_dependent(
    ops: Iterable[tf.Operation],
    batch: int | None = None,
    constants: Iterable[tf.Tensor] = (),
    has_draws: bool = True,
) -> set[int]:
    """Ids of the tensors whose *contents* depend on the data, or on some `constants`.

    Shapes do not count: the number of examples is fixed by the pipeline and
    public. Random draws without a seed do, if `has_draws`: they have a row for each
    example.
    """
    ops = list(ops)
    dependent = {id(source) for source in (*data_sources(ops, batch), *constants)}
    for op in ops:
        if passes_data_on(op, dependent) or (has_draws and _draws_rows(op)):
            dependent.update(id(output) for output in op.outputs)
    return dependent


def passes_data_on(op: tf.Operation, dependent: Container[int]) -> bool:
    """Whether the outputs of an op depend on the contents of dependent inputs."""
    if op.type in SHAPE_OPS:
        return False
    return any(id(tensor) in dependent for tensor in op.inputs)


def _draws_rows(op: tf.Operation) -> bool:
    return op.type.startswith("Random") and is_stateful(op)


def variable_handle(variable: Any) -> tf.Tensor:
    """The resource tensor of a Keras or TensorFlow variable, in this replica."""
    variable = getattr(variable, "value", variable)
    return variable.handle


def variable_name(variable: Any) -> str:
    """The name by which errors tell a variable from others."""
    return getattr(variable, "path", None) or variable.name


def handle_in_graph(variable: Any, graph: Any) -> tf.Tensor | None:
    """The placeholder through which `graph` sees the variable, if it does."""
    return handles_in_graph([variable], graph)[0]


def handles_in_graph(variables: Iterable[Any], graph: Any) -> list[tf.Tensor | None]:
    """The same for several variables, of which a deep model has as many as captures."""
    inner_of: dict[int, tf.Tensor] = {}
    for external, inner in tf_internals.captures_of(graph):
        for tensor in (external, _eager(external)):
            if tensor is not None:
                inner_of.setdefault(id(tensor), inner)
    found = []
    for wanted in map(variable_handle, variables):
        inner = inner_of.get(id(wanted))
        found.append(inner_of.get(id(_eager(wanted))) if inner is None else inner)
    return found


def _eager(handle: tf.Tensor) -> tf.Tensor | None:
    return handle if not is_symbolic(handle) else captured_source(handle)


def function_names(value: Any) -> list[str]:
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func.name]
    if kind == "list":
        return [function.name for function in value.list.func]
    return []


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


def called_graphs(op: tf.Operation) -> list:
    """The graphs of the functions that an op calls (loops, branches, calls).

    Those that are not known are left out.
    """
    graphs: list[Any] = []
    if not calls_functions(op):
        return graphs
    for value in op.node_def.attr.values():
        for name in function_names(value):
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
