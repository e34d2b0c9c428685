"""Arithmetic on shapes: what is known of the entries of a result."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.row_analysis.registry import register_content
from keras_dp_ext.verification.row_analysis.sizes import AnySize, Size, quotient
from keras_dp_ext.verification.row_analysis.transfer.common import integers
from keras_dp_ext.verification.row_analysis.transfer.contents import (
    object_array,
    with_content,
)
from keras_dp_ext.verification.row_analysis.values import Value

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


def _binary(function: Any) -> Any:
    """Entry by entry; `None` where an entry is not known."""

    def apply(a: Any, b: Any) -> Any:
        return None if a is None or b is None else function(a, b)

    return np.frompyfunc(apply, 2, 1)


def _divide(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else None
    exact = quotient(a, b)
    return Size.unknown("//", a, b) if exact is None else exact


def _remainder(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else None
    return None if quotient(a, b) is None else 0


def _largest(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else None


def _smallest(a: AnySize, b: AnySize) -> AnySize | None:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else None


_ARITHMETIC = {
    "Add": operator.add,
    "AddV2": operator.add,
    "FloorDiv": _divide,
    "FloorMod": _remainder,
    "Maximum": _largest,
    "Minimum": _smallest,
    "Mul": operator.mul,
    "Sub": operator.sub,
}


@register_content(*_ARITHMETIC)
def arithmetic(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    a, b = (value.content for value in inputs)
    if op.type == "FloorMod" and a is None and b is not None:
        # `random_crop`: an offset below 1 is 0.
        return with_content(np.where(b == 1, 0, None))
    if a is None or b is None or not op.outputs[0].dtype.is_integer:
        return None
    return with_content(np.asarray(_binary(_ARITHMETIC[op.type])(a, b), dtype=object))


_COMPARISONS = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "NotEqual": operator.ne,
}


@register_content(*_COMPARISONS)
def comparison(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    """0 or 1; between sizes of which one is unknown, a new unknown."""
    a, b = (value.content for value in inputs)
    if a is None or b is None:
        return None

    def compare(x: AnySize, y: AnySize) -> AnySize:
        if isinstance(x, int) and isinstance(y, int):
            return int(_COMPARISONS[op.type](x, y))
        return Size.unknown(op.type, x, y)

    return with_content(np.asarray(_binary(compare)(a, b), dtype=object))


@register_content("SelectV2")
def select(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    condition, chosen, otherwise = inputs
    if condition.content is None or condition.content.size != 1:
        return None
    answer = condition.content.item()
    if isinstance(answer, int):
        choice = chosen if answer else otherwise
        return choice if choice.shape == frame.shape(op) else None
    # `vectorized_map` takes row 0 where there is only one: `range(n)`, if n > 1.
    is_zero = otherwise.content is not None and otherwise.content.tolist() == 0
    if (
        chosen.counts
        and is_zero
        and answer == Size.unknown("Greater", *chosen.shape, 1)
    ):
        return chosen
    return None


@register_content("Neg")
def negative(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    (value,) = inputs
    if value.content is None or None in value.content.reshape(-1).tolist():
        return None
    return with_content(np.asarray(-value.content, dtype=object))


@register_content("Max", "Min")
def extreme(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content = inputs[0].content
    if content is None or content.ndim != 1 or integers(inputs[1]) not in ([0], [-1]):
        return None
    entries = set(content.tolist())
    if len(entries) > 1 and not all(isinstance(entry, int) for entry in entries):
        return None
    result = max(entries) if op.type == "Max" else min(entries)
    return with_content(object_array([result] if op.get_attr("keep_dims") else result))


@register_content("Prod", "Sum")
def reduction(op: tf.Operation, inputs: Sequence[Value], frame: Frame) -> Value | None:
    content = inputs[0].content
    axes = integers(inputs[1])
    if content is None or content.ndim != 1 or axes not in ([0], [-1]):
        return None
    entries = content.tolist()
    if None in entries:
        return None
    combine = operator.mul if op.type == "Prod" else operator.add
    total = functools.reduce(combine, entries, 1 if op.type == "Prod" else 0)
    return with_content(object_array([total] if op.get_attr("keep_dims") else total))
