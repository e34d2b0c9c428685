"""A weight on its way from the variable to the op that uses it."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class View:
    """A chain of rearrangements (reshape, transpose, sign) of one variable.

    Rearrangements keep the Euclidean norm, so a gradient with respect to the view
    has the norm of the gradient with respect to the variable.

    Attributes:
        shape: The variable's static shape.
        steps: From the variable to the view: `("reshape", new_shape)`,
            `("transpose", permutation)` or `("negate",)`.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple, ...] = ()

    def then(self, *step: Any) -> View:
        return dataclasses.replace(self, steps=(*self.steps, step))

    @property
    def view_shape(self) -> tuple[int, ...]:
        shape = self.shape
        for kind, *argument in self.steps:
            if kind == "reshape":
                shape = tuple(argument[0])
            elif kind == "transpose":
                shape = tuple(shape[axis] for axis in argument[0])
        return shape

    def to_view(self, value: tf.Tensor) -> tf.Tensor:
        """Rearranges a tensor of the variable's shape; ignores the sign."""
        for kind, *argument in self.steps:
            if kind == "reshape":
                value = tf.reshape(value, argument[0])
            elif kind == "transpose":
                value = tf.transpose(value, argument[0])
        return value

    def from_view(self, value: tf.Tensor, rows: bool = False) -> tf.Tensor:
        """The adjoint: a gradient of the view becomes one of the variable.

        Args:
            value: A tensor of the view's shape, or `[rows, *view_shape]`.
            rows: Whether the leading axis counts rows.
        """
        shapes = [self.shape]
        for step in self.steps:
            shapes.append(
                dataclasses.replace(self, steps=(step,), shape=shapes[-1]).view_shape
            )
        for (kind, *argument), before in zip(
            reversed(self.steps), reversed(shapes[:-1]), strict=True
        ):
            if kind == "reshape":
                value = tf.reshape(value, ([-1] if rows else []) + list(before))
            elif kind == "transpose":
                inverse = _inverse(argument[0])
                value = tf.transpose(
                    value, [0, *(axis + 1 for axis in inverse)] if rows else inverse
                )
            elif kind == "negate":
                value = -value
        return value


def _inverse(permutation: Any) -> list[int]:
    inverse = [0] * len(permutation)
    for position, axis in enumerate(permutation):
        inverse[axis] = position
    return inverse


def extend(view: View, op: tf.Operation) -> View | None:
    """The view behind `op`, or `None` if `op` is not a rearrangement."""
    output = op.outputs[0]
    if op.type in ("Identity", "Cast", "ReadVariableOp", "Snapshot"):
        return view if output.dtype.is_floating else None
    if op.type in ("Reshape", "Squeeze", "ExpandDims"):
        if not output.shape.is_fully_defined():
            return None
        return view.then("reshape", tuple(output.shape.as_list()))
    if op.type == "Transpose":
        permutation = tf.get_static_value(op.inputs[1])
        if permutation is None:
            return None
        return view.then("transpose", tuple(int(axis) for axis in permutation))
    if op.type == "Neg":
        return view.then("negate")
    return None
