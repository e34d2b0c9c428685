"""Einsum layers: EinsumDense, the projections of attention, mixtures of experts."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.contributions import (
    Contribution,
    Mapped,
    OuterProducts,
    Rows,
)
from keras_dp_ext.gradients.graph.uses import Use
from keras_dp_ext.gradients.registry import register_rule
from keras_dp_ext.gradients.split import Split

_LETTERS = string.ascii_uppercase + string.ascii_lowercase


@register_rule("Einsum")
def einsum(use: Use, d: tf.Tensor, split: Split) -> Contribution | None:
    """`x, w -> y` with the batch along one axis of `x` and `y`, often the first.

    Axes of `w` that `x` has and `y` has not are inputs, those that `y` has and
    `x` has not are outputs; everything else in `x` is a position.
    """
    equation = _spelled_out(use.op, 1 - use.index)
    terms, result = equation.split("->")
    terms = terms.split(",")
    if len(terms) != 2 or "." in equation:
        return None
    weight = terms[use.index]
    data_tensor, data = use.op.inputs[1 - use.index], terms[1 - use.index]
    if not data or not result:
        return None
    rows = data[split.axis(data_tensor)]
    if rows in weight or data.count(rows) != 1 or result.count(rows) != 1:
        return None
    inputs = [axis for axis in weight if axis in data and axis not in result]
    outputs = [axis for axis in weight if axis in result and axis not in data]
    shared = [axis for axis in weight if axis in data and axis in result]
    if len(inputs) + len(outputs) + len(shared) != len(weight):
        return None
    if set(data) - set(weight) - set(result) or len(set(data)) != len(data):
        return None
    left = split(_rows_first(data_tensor, data, rows), like=data_tensor, moved=True)
    right = split(_rows_first(d, result, rows), like=data_tensor, moved=True)
    data, result = rows + data.replace(rows, ""), rows + result.replace(rows, "")
    if left.shape[1] is None:
        return None
    # Axis 1 of the split tensors: the examples of one microbatch.
    group = next(letter for letter in _LETTERS if letter not in equation)
    data_axes = rows + group + data[1:]
    result_axes = rows + group + result[1:]
    if shared:
        product = tf.einsum(f"{data_axes},{result_axes}->{rows}{weight}", left, right)
        return Rows(product, use.weight.shape)
    positions = group + "".join(axis for axis in data[1:] if axis not in weight)
    order = "".join(inputs + outputs)
    left = _arranged(left, data_axes, rows, positions, inputs)
    right = _arranged(right, result_axes, rows, positions, outputs)
    sizes = dict(zip(weight, use.weight.shape, strict=True))
    products = OuterProducts(left, right, [sizes[axis] for axis in order])
    if order == weight:
        return products
    back = [order.index(axis) for axis in weight]
    forth = [weight.index(axis) for axis in order]
    return Mapped(
        products,
        use.weight.shape,
        rows_map=lambda value: tf.transpose(value, [0, *(a + 1 for a in back)]),
        sum_map=lambda value: tf.transpose(value, back),
        scale_map=lambda scale: tf.transpose(scale, forth),
    )


def _spelled_out(op: tf.Operation, number: int) -> str:
    """The equation, with letters for the axes that `...` stands for in the data."""
    equation = op.get_attr("equation").decode()
    terms, result = equation.split("->")
    data, rank = terms.split(",")[number], op.inputs[number].shape.rank
    is_plain = data.count("...") == result.count("...") == 1
    if not is_plain or equation.count("...") != 2 or rank is None:
        return equation
    free = [letter for letter in _LETTERS if letter not in equation]
    axes = "".join(free[: rank - len(data.replace("...", ""))])
    return equation.replace("...", axes)


def _rows_first(value: tf.Tensor, axes: str, rows: str) -> tf.Tensor:
    place = axes.index(rows)
    if place == 0:
        return value
    others = [axis for axis in range(len(axes)) if axis != place]
    return tf.transpose(value, [place, *others])


def _arranged(
    value: tf.Tensor, axes: str, rows: str, positions: str, features: Sequence[str]
) -> tf.Tensor:
    """Transposes and flattens to `[rows, positions, features]`."""
    wanted = rows + positions + "".join(features)
    sizes = dict(zip(axes, value.shape, strict=True))
    value = tf.transpose(value, [axes.index(axis) for axis in wanted])
    width = _product(sizes[axis] for axis in features)
    count = _product(sizes[axis] for axis in positions)
    if count is None:
        return tf.reshape(value, [tf.shape(value)[0], -1, width])
    return tf.reshape(value, [-1, count, width])


def _product(sizes: Iterable[int | None]) -> int | None:
    result = 1
    for size in sizes:
        if size is None:
            return None
        result *= size
    return result
