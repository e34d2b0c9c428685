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
_constants: contextvars.ContextVar[dict[Any, tf.Operation] | None]
_constants = contextvars.ContextVar("_constants", default=None)


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
                known = _constants.get()
                key = None if known is None else _key_of_constant(self, args, kwargs)
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
def shared_constants() -> Iterator[None]:
    """Equal small integers of one graph are one op inside of the `with`.

    A fifth of the ops of a private step are shapes and axes. TensorFlow would merge
    them, too, but only after each has been made in Python and prepared by every one of
    its passes. Floats are left alone: zeros may be there to be differentiated by, or
    ones to be replaced, each for itself.

    On graphs whose ops are observed, and for this thread only, which traces for one
    replica.
    """
    token = _constants.set({})
    try:
        yield
    finally:
        _constants.reset(token)


def _key_of_constant(graph: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What tells a constant from all others, or `None` where it is not to be shared.

    Relies on `Graph._device_function_stack` (2.16).
    """
    if "Const" not in (*args[:1], kwargs.get("op_type")):
        return None
    attributes = kwargs.get("attrs") or {}
    if set(attributes) != {"value", "dtype"}:
        return None
    if not tf.as_dtype(attributes["dtype"].type).is_integer:
        return None
    if attributes["value"].ByteSize() > _LARGEST_SHARED:
        return None
    # A constant on one device would have to be sent to another one.
    if list(require(graph, "_device_function_stack").peek_objs()):
        return None
    return graph, attributes["value"].SerializeToString()
