"""Back from gradients of a computed weight to those of its variable, for all rows.

Weight standardisation, weight normalisation, a scaled kernel: a few ops lead from a
variable to the weight that meets the data. `tf.vectorized_map` takes their gradients
for all rows, too, but needs a hundred ops for what is a dozen here, and several times
as long to trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib

# From an op and the gradients `[rows, *shape]` of its output to those of its inputs;
# only those inputs are asked for of which the number is given.
_Step = Callable[[tf.Operation, tf.Tensor, int], tf.Tensor]


def adjoint_of_rows(
    weight: tf.Tensor, handle: tf.Tensor
) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """A map from `[rows, *weight.shape]` to `[rows, *shape of the variable]`.

    Args:
        weight: What is computed of the variable, without any data.
        handle: The variable's.

    Returns:
        `None` if there is an op among them that is not known here.
    """
    made_of_variable = {id(handle)}
    steps: list[tuple[tf.Operation, list[int]]] = []
    for op in graph_lib.ancestors([weight]):
        places = [n for n, one in enumerate(op.inputs) if id(one) in made_of_variable]
        if not places or op.type == "StopGradient":
            continue
        if not _is_known(op, places):
            return None
        made_of_variable.update(map(id, op.outputs))
        steps.append((op, places))
    if id(weight) not in made_of_variable:
        return None

    def adjoint(rows: tf.Tensor) -> tf.Tensor:
        gradients = {id(weight): [tf.cast(rows, weight.dtype)]}
        for op, places in reversed(steps):
            found = gradients.pop(id(op.outputs[0]), None)
            if found is None:
                continue  # Not on the way to the weight.
            gradient = found[0] if len(found) == 1 else tf.add_n(found)
            for place in places:
                part = _STEPS[op.type](op, gradient, place)
                gradients.setdefault(id(op.inputs[place]), []).append(part)
        found = gradients[id(handle)]
        return tf.cast(found[0] if len(found) == 1 else tf.add_n(found), tf.float32)

    return adjoint


def _is_known(op: tf.Operation, places: list[int]) -> bool:
    if op.type not in _STEPS or len(op.outputs) != 1:
        return False
    if "_gradient_op_type" in op.node_def.attr:
        return False  # It has a gradient of its own.
    if op.type == "ReadVariableOp":
        return True
    tensors = [*op.outputs, *(op.inputs[place] for place in places)]
    if not all(
        tensor.dtype.is_floating and tensor.shape.is_fully_defined()
        for tensor in tensors
    ):
        return False
    if op.type in _WITH_ARGUMENT:
        return places == [0] and tf.get_static_value(op.inputs[1]) is not None
    return all(one.shape.is_fully_defined() for one in op.inputs)


def _summed_to(gradient: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """Adds up over what was broadcast, but not over the rows."""
    given = gradient.shape[1:]
    added = given.rank - shape.rank
    axes = [
        axis + 1
        for axis, size in enumerate(given)
        if axis < added or (shape[axis - added] == 1 and size != 1)
    ]
    if axes:
        gradient = tf.reduce_sum(gradient, axis=axes)
    return _reshaped(gradient, shape)


def _reshaped(gradient: tf.Tensor, shape: Sequence[Any]) -> tf.Tensor:
    shape = [int(size) for size in shape]
    if gradient.shape[1:].as_list() == shape:
        return gradient
    rows = gradient.shape[0]
    if rows is None:
        rows = -1 if math.prod(shape) else tf.shape(gradient)[0]
    return tf.reshape(gradient, [rows, *shape])


def _elementwise(
    derivative: Callable[[tf.Operation, int], Any],
) -> Callable[[tf.Operation, tf.Tensor, int], tf.Tensor]:
    """The adjoint of an op that works on each element by itself."""

    def step(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
        factor = derivative(op, place)
        if factor is not None:
            gradient = gradient * factor
        return _summed_to(gradient, op.inputs[place].shape)

    return step


def _of_sum(op: tf.Operation, place: int) -> None:
    return None


def _of_difference(op: tf.Operation, place: int) -> float | None:
    return -1.0 if place == 1 else None


def _of_product(op: tf.Operation, place: int) -> tf.Tensor:
    return op.inputs[1 - place]


def _of_quotient(op: tf.Operation, place: int) -> tf.Tensor:
    _, divisor = op.inputs
    return 1.0 / divisor if place == 0 else -op.outputs[0] / divisor


def _of_larger(op: tf.Operation, place: int) -> tf.Tensor:
    return _where_first(op, place, op.inputs[0] >= op.inputs[1])


def _of_smaller(op: tf.Operation, place: int) -> tf.Tensor:
    return _where_first(op, place, op.inputs[0] <= op.inputs[1])


def _where_first(op: tf.Operation, place: int, is_first: tf.Tensor) -> tf.Tensor:
    chosen = is_first if place == 0 else tf.logical_not(is_first)
    return tf.cast(chosen, op.outputs[0].dtype)


def _of_squared_difference(op: tf.Operation, place: int) -> tf.Tensor:
    return (2.0 if place == 0 else -2.0) * (op.inputs[0] - op.inputs[1])


def _unary(derivative: Callable[[tf.Tensor, tf.Tensor], Any]) -> _Step:
    return _elementwise(lambda op, _: derivative(op.inputs[0], op.outputs[0]))


def _reduction(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
    before, after = op.inputs[0].shape, op.outputs[0].shape
    axes = {int(axis) % before.rank for axis in tf.get_static_value(op.inputs[1]).flat}
    kept = [1 if axis in axes else size for axis, size in enumerate(before)]
    gradient = _reshaped(gradient, kept)
    if op.type == "Mean":
        gradient = gradient * (after.num_elements() / before.num_elements())
    shape = tf.concat([tf.shape(gradient)[:1], before.as_list()], axis=0)
    return tf.broadcast_to(gradient, shape)


def _rearranged(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
    return _reshaped(gradient, op.inputs[0].shape)


def _transposed(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
    order = tf.get_static_value(op.inputs[1]).tolist()
    back = [order.index(axis) + 1 for axis in range(len(order))]
    return tf.transpose(gradient, [0, *back])


def _cast(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
    return tf.cast(gradient, op.inputs[0].dtype)


def _unchanged(op: tf.Operation, gradient: tf.Tensor, place: int) -> tf.Tensor:
    return gradient


# Their second input says along which axes, or into which shape.
_WITH_ARGUMENT = frozenset({"ExpandDims", "Mean", "Reshape", "Sum", "Transpose"})

_STEPS: dict[str, _Step] = {
    "Abs": _unary(lambda x, _: tf.sign(x)),
    "Add": _elementwise(_of_sum),
    "AddV2": _elementwise(_of_sum),
    "Cast": _cast,
    "Exp": _unary(lambda _, y: y),
    "ExpandDims": _rearranged,
    "Identity": _unchanged,
    "Maximum": _elementwise(_of_larger),
    "Mean": _reduction,
    "Minimum": _elementwise(_of_smaller),
    "Mul": _elementwise(_of_product),
    "Neg": _unary(lambda *_: -1.0),
    "ReadVariableOp": _unchanged,
    "RealDiv": _elementwise(_of_quotient),
    "Reciprocal": _unary(lambda _, y: -y * y),
    "Reshape": _rearranged,
    "Rsqrt": _unary(lambda _, y: -0.5 * y * y * y),
    "Sigmoid": _unary(lambda _, y: y * (1.0 - y)),
    "Sqrt": _unary(lambda _, y: 0.5 / y),
    "Square": _unary(lambda x, _: 2.0 * x),
    "SquaredDifference": _elementwise(_of_squared_difference),
    "Squeeze": _rearranged,
    "Sub": _elementwise(_of_difference),
    "Sum": _reduction,
    "Tanh": _unary(lambda _, y: 1.0 - y * y),
    "Transpose": _transposed,
}
