"""Lets every op that TensorFlow adds to a traced graph pass by an observer.

Relies on: `FuncGraph._create_op_internal` makes every op of a traced graph (since
TensorFlow 2.16 at least). There is no public way to see ops while they are made.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext._compat.versions import incompatible, require

_METHOD = "_create_op_internal"
_CANARY = "keras_dp_ext_canary"

_lock = threading.Lock()
_observers: list[Callable[[tf.Operation], None]] = []
_canaries: set[tf.Operation] = set()

# Larger ones are rare, and comparing them would take longer than a second op.
_LARGEST_SHARED = 256

# What only rearranges numbers. Not `Identity`, which is made to be told apart.
_REARRANGE = frozenset({"ExpandDims", "Reshape", "Shape", "StridedSlice"})

# What is shared where it is about integers or booleans: sizes, places, masks.
_ARITHMETIC = frozenset(
    {
        "AddV2",
        "Cast",
        "ConcatV2",
        "FloorDiv",
        "Maximum",
        "Minimum",
        "Mul",
        "Neg",
        "Pack",
        "Range",
        "Sub",
    }
)
_shared: contextvars.ContextVar[dict[Any, tf.Operation] | None]
_shared = contextvars.ContextVar("_shared", default=None)


def observe_new_ops(observer: Callable[[tf.Operation], None]) -> None:
    """Calls `observer` with every op of every graph that is traced from now on.

    On the class, not on one graph: a function that was traced before may be called
    in any graph that is yet to come.
    """
    with _lock:
        graph_class = tf_internals.function_graph_class()
        create = require(graph_class, _METHOD)
        if not hasattr(create, "_keras_dp_ext"):

            @functools.wraps(create)
            def create_and_tell(self: Any, *args: Any, **kwargs: Any) -> Any:
                known = _shared.get()
                key = None if known is None else _key(self, *args, **kwargs)
                if key is not None and key in known:
                    return known[key]
                op = create(self, *args, **kwargs)
                if key is not None and not op.control_inputs:
                    known[key] = op
                if _CANARY in op.name:
                    _canaries.add(op)
                for told in _observers:
                    told(op)
                return op

            create_and_tell._keras_dp_ext = True  # type: ignore[attr-defined]
            setattr(graph_class, _METHOD, create_and_tell)
        if observer not in _observers:
            _observers.append(observer)


def require_observed(graph: Any) -> None:
    """Makes an op in a graph, and requires that it passed by.

    Raises:
        IncompatibleVersionError: If it did not, so that other ops might not, too.
    """
    with graph.as_default(), tf.control_dependencies(None):
        canary = tf.no_op(name=_CANARY)
    if canary not in _canaries:
        raise incompatible(
            f"An op was added to a graph without a call of `FuncGraph.{_METHOD}`"
        )
    _canaries.discard(canary)


@contextlib.contextmanager
def shared_ops() -> Iterator[None]:
    """Equal small integers, and what rearranges equal tensors equally, are one op each.

    Inside of the `with`, in one graph. A fifth of the ops of a private step are shapes
    and axes; factors are sliced, masked and reshaped again wherever they are used.
    TensorFlow would merge them, too, but only after each has been made in Python and
    prepared by every one of its passes. Floats are left alone: zeros may be there to be
    differentiated by, or ones to be replaced, each for itself.

    On graphs whose ops are observed, and for this thread only, which traces for one
    replica.
    """
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


@contextlib.contextmanager
def unshared_ops() -> Iterator[None]:
    """Inside of it every op is made anew: a copied op stands for its original alone."""
    token = _shared.set(None)
    try:
        yield
    finally:
        _shared.reset(token)


def _key(
    graph: Any,
    op_type: str,
    inputs: Any,
    dtypes: Any = None,
    input_types: Any = None,
    name: Any = None,
    attrs: dict[str, Any] | None = None,
    *_: Any,
    **__: Any,
) -> Any:
    """What tells an op from all others, or `None` where it is not to be shared.

    Takes what `_create_op_internal` is given. Relies on
    `Graph._device_function_stack` (2.16).
    """
    attrs = attrs or {}
    if op_type == "Const":
        if not _is_small_integer(attrs):
            return None
    elif op_type in _REARRANGE or op_type in _ARITHMETIC:
        # A tensor from outside is replaced by a placeholder in here.
        if any(getattr(tensor, "graph", None) is not graph for tensor in inputs):
            return None
        if op_type in _ARITHMETIC and not all(map(_counts, inputs)):
            return None
    else:
        return None
    # An op on one device would have to be sent to another one.
    if list(require(graph, "_device_function_stack").peek_objs()):
        return None
    values = tuple((name, attrs[name].SerializeToString()) for name in sorted(attrs))
    # The op that is kept keeps its inputs, and so their identities.
    return graph, op_type, tuple(map(id, inputs)), values


def _is_small_integer(attributes: dict[str, Any]) -> bool:
    if set(attributes) != {"value", "dtype"}:
        return False
    if not tf.as_dtype(attributes["dtype"].type).is_integer:
        return False
    return attributes["value"].ByteSize() <= _LARGEST_SHARED


def _counts(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_integer or tensor.dtype.is_bool
