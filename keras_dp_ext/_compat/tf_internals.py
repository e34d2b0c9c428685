"""Parts of TensorFlow that are not public.

Each function says what it relies on, and since when; "2.16" stands for the oldest
TensorFlow that was looked at. What is missing is an `IncompatibleVersionError`, never
a default: most of this serves checks that must not be left out in silence.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat.versions import check_versions, incompatible, require

check_versions()  # All that needs TensorFlow imports this module.

# Graphs -----------------------------------------------------------------------


def function_graph_class() -> type:
    """The class of graphs that a `tf.function`, branch or loop traces.

    Relies on `tf.__internal__.FuncGraph` (2.16).
    """
    return require(require(tf, "__internal__"), "FuncGraph")


def is_function_graph(graph: Any) -> bool:
    """Whether a graph is being, or was, traced."""
    return isinstance(graph, function_graph_class())


def scratch_graph(name: str) -> Any:
    """A new graph to trace into; it is never run."""
    return function_graph_class()(name)


def is_control_flow_body(graph: Any) -> bool:
    """Whether a graph is that of a branch or a loop, not of a function.

    Relies on `ControlFlowFuncGraph` (2.16).
    """
    module = _module("tensorflow.python.ops.control_flow_v2_func_graphs")
    return isinstance(graph, require(module, "ControlFlowFuncGraph"))


def is_loop_body(graph: Any) -> bool:
    """Whether a graph is that of the body or the condition of a loop.

    Relies on `WhileBodyFuncGraph` and `WhileCondFuncGraph` (2.16).
    """
    module = _module("tensorflow.python.ops.control_flow_v2_func_graphs")
    kinds = (
        require(module, "WhileBodyFuncGraph"),
        require(module, "WhileCondFuncGraph"),
    )
    return isinstance(graph, kinds)


def outer_graph(graph: Any) -> Any | None:
    """The graph in which a traced graph is being, or was, traced.

    Relies on `FuncGraph.outer_graph` (2.16).
    """
    return require(graph, "outer_graph") if is_function_graph(graph) else None


# For each graph, from its captured placeholders to what they stand for.
_captures: weakref.WeakKeyDictionary[Any, dict[int, tf.Tensor]] = (
    weakref.WeakKeyDictionary()
)


def captured_from(placeholder: tf.Tensor) -> tf.Tensor | None:
    """What a placeholder of a traced graph stands for outside of it, or `None`."""
    graph = placeholder.graph
    if not is_function_graph(graph):
        return None
    known = _captures.setdefault(graph, {})
    if id(placeholder) not in known:
        # A graph keeps its tensors, and what one was captured from does not change.
        for outer, inner in captures_of(graph):
            known[id(inner)] = outer
    return known.get(id(placeholder))


def captures_of(graph: Any) -> list[tuple[Any, tf.Tensor]]:
    """What a traced graph took from outside, each with its placeholder inside.

    Relies on `FuncGraph.captures` (2.16). Other graphs have none.
    """
    return list(require(graph, "captures")) if is_function_graph(graph) else []


def capture(graph: Any, tensor: tf.Tensor) -> tf.Tensor:
    """The placeholder by which a graph that is being traced takes a tensor from outside.

    Relies on `FuncGraph.capture` (2.16).
    """
    return require(graph, "capture")(tensor)


def is_symbolic(tensor: Any) -> bool:
    """Whether a tensor belongs to a graph.

    Relies on `tf.__internal__.EagerTensor` (2.16).
    """
    return tf.is_tensor(tensor) and not isinstance(tensor, _eager_tensor_class())


@functools.cache
def _eager_tensor_class() -> type:
    return require(require(tf, "__internal__"), "EagerTensor")


def tensor_identity(tensor: tf.Tensor) -> int:
    """Unlike `id`, never given to a second tensor. Relies on `_id` (2.16)."""
    return require(tensor, "_id")


# Ops and functions ---------------------------------------------------------------


def create_op_like(
    op: tf.Operation, inputs: list[tf.Tensor], attributes: dict[str, Any], graph: Any
) -> tf.Operation:
    """The same op again, with other inputs.

    Relies on `Graph._create_op_internal`, which public functions call, and on
    `Operation._gradient_function`: the gradient of a call (a grouped convolution) is
    no attribute of the node (2.16).
    """
    # Names that TensorFlow gives within a scope, such as `_0`, may not begin one.
    name = op.name.split("/")[-1].lstrip("_")
    copy = require(graph, "_create_op_internal")(
        op.type,
        inputs,
        dtypes=[output.dtype for output in op.outputs],
        name=name or op.type,
        attrs=attributes,
        op_def=op.op_def,
    )
    copy._gradient_function = require(op, "_gradient_function")
    return copy


def find_function(graph: Any, name: str) -> Any | None:
    """A function that a graph, or one around it, calls by this name.

    Relies on `Graph._is_function` and `Graph._get_function` (2.16).
    """
    while graph is not None:
        if require(graph, "_is_function")(name):
            return require(graph, "_get_function")(name)
        graph = outer_graph(graph)
    return None


def functions_of_graph(graph: Any) -> list[Any]:
    """All functions that the ops of a graph call. Relies on `Graph._functions` (2.16)."""
    return list(require(graph, "_functions").values())


def graph_of_function(function: Any) -> Any | None:
    """The graph of what `find_function` found; `None` where it has none.

    Only functions in the style of TensorFlow's first version have none: see
    `graph_of_legacy_function`. Relies on `AtomicFunction.graph` (2.16).
    """
    if function is None or _is_legacy(function):
        return None
    return require(function, "graph")


def _is_legacy(function: Any) -> bool:
    """Relies on the class `_DefinedFunction` (2.16)."""
    module = _module("tensorflow.python.framework.function")
    return isinstance(function, require(module, "_DefinedFunction"))


def graph_of_legacy_function(
    graph: Any, name: str, shapes: list[list[int | None] | None]
) -> Any | None:
    """The graph of a function that TensorFlow made in the style of its first version.

    The CTC loss does. Its loop calls a wrapper, and the wrapper has an op whose *type*
    is the name of the function inside. What this returns is a copy to read.

    Relies on `_DefinedFunction.definition` and `_sub_functions`, and on
    `function_def_to_graph` (2.16).

    Args:
        graph: That calls it.
        name: Of the function.
        shapes: What is known about the shapes of its inputs.

    Returns:
        `None` if it is no such function.
    """
    function = find_function(graph, name)
    if function is None or not _is_legacy(function):
        return None
    library = scratch_graph(f"library_of_{name}")
    for inner in require(function, "_sub_functions").values():
        add_function(library, inner)
    module = _module("tensorflow.python.framework.function_def_to_graph")
    convert = require(module, "function_def_to_graph")
    definition = type(require(function, "definition"))()
    definition.CopyFrom(function.definition)
    definition.ClearField("arg_attr")  # Shapes that are not known, before ours.
    with library.as_default():
        return convert(definition, input_shapes=[tf.TensorShape(x) for x in shapes])


def add_function(graph: Any, function: Any) -> None:
    """Makes a function known to a graph.

    Relies on `Graph._add_function_recursive` (2.16).
    """
    require(graph, "_add_function_recursive")(function)


def custom_gradient(op: tf.Operation) -> Callable | None:
    """The gradient function that `tf.custom_gradient` gave to an op, or `None`.

    Relies on the attribute `_gradient_op_type`, on `Operation._gradient_function`, which
    goes before it, and on `ops.gradient_registry` (2.16).
    """
    try:
        name = op.get_attr("_gradient_op_type").decode()
    except ValueError:
        return None
    module = _module("tensorflow.python.framework.ops")
    function = require(op, "_gradient_function")
    return function or require(module, "gradient_registry").lookup(name)


def set_gradient(op: tf.Operation, function: Callable) -> None:
    """Gives an op another gradient. Relies on `Operation._gradient_function` (2.16)."""
    require(op, "_gradient_function")
    op._gradient_function = function


def define_function(
    name: str,
    ops: list[tf.Operation],
    inputs: list[tf.Tensor],
    outputs: list[tf.Tensor],
) -> Any:
    """Makes a function of ops of a graph, which may be traced still.

    Without the Python stacks at which the ops were made: TensorFlow would write out all
    frames of each before the first run, and keep them as long as the graph (110 MB for
    an EfficientNetB0).

    Relies on `TF_GraphToFunction_wrapper`, with which `tf.function` makes its own, and
    on `Context.add_c_function` (2.16).

    Returns:
        Its FunctionDef.
    """
    session = _module("tensorflow.python.client.pywrap_tf_session")
    with require(outputs[0].graph, "_c_graph").get() as c_graph:
        function = require(session, "TF_GraphToFunction_wrapper")(
            c_graph,
            name,
            False,
            [require(op, "_c_op") for op in ops],
            [require(tensor, "_as_tf_output")() for tensor in inputs],
            [require(tensor, "_as_tf_output")() for tensor in outputs],
            [],
            [],
            [],
            None,
            "",
        )
    require(_context(), "add_c_function")(function)
    require(session, "TF_DeleteFunction")(function)
    definition = function_definition(name)  # Which has no stacks.
    for place in definition.arg_attr.values():
        # An input that is the result of a compiled function is none itself.
        place.attr.pop("_XlaMustCompile", None)
    remove_function(name)
    add_definition(definition)
    return definition


def function_definition(name: str) -> Any:
    """The FunctionDef of a function. Relies on `Context.get_function_def` (2.16)."""
    return require(_context(), "get_function_def")(name)


def add_definition(definition: Any) -> None:
    """Makes a function known. Relies on `Context.add_function_def` (2.16)."""
    require(_context(), "add_function_def")(definition)


def remove_function(name: str) -> None:
    """Forgets a function. Relies on `Context.remove_function` (2.16)."""
    require(_context(), "remove_function")(name)


def call_function(
    name: str, values: list[tf.Tensor], dtypes: list[tf.DType], optimize: bool
) -> list[tf.Tensor]:
    """Runs a function by its name, as an op of its own.

    TensorFlow frees what it has prepared of such an op with the function; of a
    `PartitionedCall` it keeps it for ever. Relies on `execute.execute` (2.16).

    Args:
        name: Of the function.
        values: Its arguments.
        dtypes: Of its results.
        optimize: Whether Grappler optimizes the graph first, which takes longer than
            to run it a few times as it is.
    """
    from tensorflow.core.protobuf import config_pb2

    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = not optimize
    execute = require(_module("tensorflow.python.eager.execute"), "execute")
    return execute(
        name,
        num_outputs=len(dtypes),
        inputs=values,
        attrs=("executor_type", "", "config_proto", config.SerializeToString()),
        ctx=_context(),
    )


def _context() -> Any:
    return require(_module("tensorflow.python.eager.context"), "context")()


# Tracing -----------------------------------------------------------------------


def without_autograph() -> contextlib.AbstractContextManager:
    """AutoGraph leaves the Python control flow inside of the `with` alone.

    Relies on `ag_ctx.ControlStatusCtx` (2.16).
    """
    module = _module("tensorflow.python.autograph.core.ag_ctx")
    disabled = require(require(module, "Status"), "DISABLED")
    return require(module, "ControlStatusCtx")(status=disabled)


def is_compiled(graph: Any) -> bool:
    """Whether XLA will compile a graph that is being traced.

    Relies on `control_flow_util.GraphOrParentsInXlaContext` (2.16).
    """
    module = _module("tensorflow.python.ops.control_flow_util")
    return bool(require(module, "GraphOrParentsInXlaContext")(graph))


def multiplies_by_onednn() -> bool:
    """Whether oneDNN multiplies matrices. Relies on `IsMklEnabled` (2.16)."""
    module = _module("tensorflow.python.framework.test_util")
    return bool(require(module, "IsMklEnabled")())


# Variables and replicas ----------------------------------------------------------


def local_variable(value: tf.Tensor) -> tf.Variable:
    """A variable that does not belong to the strategy that is under way.

    Relies on `ResourceVariable` (2.16).
    """
    module = _module("tensorflow.python.ops.resource_variable_ops")
    return require(module, "ResourceVariable")(value, trainable=False)


def resource_variable_class() -> type:
    """The class of all variables. Relies on `BaseResourceVariable` (2.16)."""
    module = _module("tensorflow.python.ops.resource_variable_ops")
    return require(module, "BaseResourceVariable")


def variable_dtype(handle: tf.Tensor) -> tf.DType | None:
    """The type of what a handle refers to; `None` if that is no variable.

    Relies on `EagerTensor._handle_data` (2.16). A lookup table is a resource, too, but
    has no data of this kind.
    """
    data = require(handle, "_handle_data")
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return tf.dtypes.as_dtype(data.shape_and_type[0].dtype)


def variable_shape(handle: tf.Tensor) -> tf.TensorShape:
    """The shape of what a handle refers to; unknown if in doubt, the worst case.

    Relies on `_handle_data` (2.16), which a symbolic handle need not have.
    """
    if is_symbolic(handle):
        data = getattr(handle, "_handle_data", None)
    else:
        data = require(handle, "_handle_data")
    if data is None or not data.shape_and_type:
        return tf.TensorShape(None)
    return tf.TensorShape(data.shape_and_type[0].shape)


def merge_call(function: Callable, strategy: tf.distribute.Strategy, *args: Any) -> Any:
    """Calls a function once for all replicas.

    Relies on `maybe_merge_call` (2.16), which Keras' own optimizers use.
    """
    internal = require(require(tf, "__internal__"), "distribute")
    interim = require(internal, "interim")
    return require(interim, "maybe_merge_call")(function, strategy, *args)


def trackable_class() -> type:
    """What `tf.train.Checkpoint` saves. Relies on `Trackable` (2.16)."""
    return require(require(require(tf, "__internal__"), "tracking"), "Trackable")


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise incompatible(f"The module `{name}` is missing") from None
