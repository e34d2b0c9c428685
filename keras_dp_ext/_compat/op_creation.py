"""Lets every op that TensorFlow adds to a traced graph pass by an observer.

Relies on: `FuncGraph._create_op_internal` makes every op of a traced graph (since
TensorFlow 2.16 at least). There is no public way to see ops while they are made.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext._compat.versions import incompatible, require

_METHOD = "_create_op_internal"
_CANARY = "keras_dp_ext_canary"

_lock = threading.Lock()
_observers: list[Callable[[tf.Operation], None]] = []
_canaries: set[tf.Operation] = set()


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
                op = create(self, *args, **kwargs)
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
