"""Where an optimizer makes its variables: in front of the step, if that is possible."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def build_scope(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """In which an optimizer is built for these weights, also while a step is traced.

    TensorFlow traces a function that creates variables a second time, now without
    them. For a private step that is most of the wait before training, so its variables
    are made in front of the function. Not so with replicas, which have their own way to
    make variables, and for weights that the same trace creates: there is a second one
    for these.
    """
    if tf.distribute.has_strategy() or not all_initialized(variables):
        yield
        return
    with tf.init_scope(), tf.variable_creator_scope(_not_by_the_function):
        yield


def _not_by_the_function(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    arguments["experimental_enable_variable_lifting"] = False
    return next_creator(**arguments)


def all_initialized(variables: Sequence[keras.Variable]) -> bool:
    """Whether all weights have values; not so in the trace that creates them."""
    with tf.init_scope():
        values = [getattr(variable, "value", variable) for variable in variables]
        return all(bool(value.is_initialized()) for value in values)
