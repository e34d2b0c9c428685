"""Backward functions that users wrote: interpreted like the forward pass.

The gradients that TensorFlow defines for ops that treat every example by itself do so,
too. What stands in `tf.custom_gradient` may do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.custom_gradients import (
    TracedGradient,
    is_custom,
    trace_gradient,
)
from keras_dp_ext.verification.row_analysis.findings import RowsLostError
from keras_dp_ext.verification.row_analysis.values import MIXED, Kind, Value, constant

if TYPE_CHECKING:
    from keras_dp_ext.verification.row_analysis.frame import Frame


def check(
    frame: Frame, op: tf.Operation, inputs: Sequence[Value], outputs: Any
) -> None:
    """Raises if the gradient of an op was replaced by one that may mix examples."""
    if not any(_has_examples(value) for value in inputs):
        return
    if not is_custom(op):
        return
    outputs = [outputs] * len(op.outputs) if isinstance(outputs, Value) else outputs
    _check_backward(frame, op, inputs, outputs)


def _check_backward(
    frame: Frame, op: tf.Operation, inputs: Sequence[Value], outputs: Any
) -> None:
    from keras_dp_ext.verification.row_analysis.frame import Frame

    traced = _traced(op)
    known = {id(t): _upstream(v) for t, v in zip(traced.upstream, outputs, strict=True)}
    for outer, inner in tf_internals.captures_of(traced.graph):
        known[id(inner)] = _captured(frame, op, outer)
    path = (*frame.path, op.name, "gradient")
    backward = Frame(frame.batch, known, path, frame.findings, has_gradient=False)
    for value, gradient in zip(inputs, traced.results, strict=True):
        if not _has_examples(value) or gradient is None:
            continue
        number_of_findings = len(frame.findings)
        (result,) = backward.run([gradient])
        if result.is_constant or len(frame.findings) > number_of_findings:
            continue
        if not _are_same_examples(result, value):
            raise RowsLostError("has a gradient that belongs to other examples.")


def _has_examples(value: Value) -> bool:
    return value.kind in (Kind.ROWS, Kind.ONE_ROW)


def _are_same_examples(a: Value, b: Value) -> bool:
    if a.kind is Kind.ONE_ROW or b.kind is Kind.ONE_ROW:
        return a.kind is b.kind and a.row == b.row
    return a.has_rows and a.axis == b.axis and a.layout == b.layout


def _traced(op: tf.Operation) -> TracedGradient:
    try:
        return trace_gradient(op)
    except Exception as error:
        raise RowsLostError(
            f"has a gradient function that cannot be read ({error})."
        ) from error


def _upstream(value: Value) -> Value:
    """The gradient with respect to a constant is a sum over all examples."""
    return MIXED if value.is_constant else value.with_shape(value.shape)


def _captured(frame: Frame, op: tf.Operation, outer: tf.Tensor) -> Value:
    if not graph_lib.is_symbolic(outer):
        return constant(tuple(outer.shape))
    if outer.graph is op.graph:
        return frame.value_of(outer)
    for external, inner in tf_internals.captures_of(op.graph):
        if external is outer:
            return frame.value_of(inner)
    if graph_lib.captured_source(outer) is None:
        raise RowsLostError("has a gradient function that uses data from elsewhere.")
    return constant()
