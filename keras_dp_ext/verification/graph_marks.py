"""What is remembered about a traced graph: which of its ops are the private update."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

# On the graph itself, so that they live as long as it does.
_ATTRIBUTE = "_keras_dp_ext_marks"


@dataclasses.dataclass
class GraphMarks:
    """Marks of one graph.

    Attributes:
        private: Ops that a private update has made.
        released: Ops whose outputs are covered by noise: data end there.
        guard: The `StateGuard` that watches the graph, if any.
    """

    private: set[tf.Operation] = dataclasses.field(default_factory=set)
    released: set[tf.Operation] = dataclasses.field(default_factory=set)
    guard: Any = None


_NO_MARKS = GraphMarks(frozenset(), frozenset())  # type: ignore[arg-type]


def marks_of(graph: Any) -> GraphMarks:
    """The marks of a graph, to be read only."""
    return getattr(graph, _ATTRIBUTE, _NO_MARKS)


def marks_for(graph: Any) -> GraphMarks:
    """The marks of a graph, to be added to."""
    if not hasattr(graph, _ATTRIBUTE):
        setattr(graph, _ATTRIBUTE, GraphMarks())
    return getattr(graph, _ATTRIBUTE)
