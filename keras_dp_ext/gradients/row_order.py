"""Where the examples are in tensors that are not batch-major.

A model may transpose `[batch, time, ...]` to `[time, batch, ...]` before it multiplies by
a weight. Where that happens, the static analysis of the graph tells along which axis the
examples lie. The probe verifies the result like that of any other rule.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib


@dataclasses.dataclass(frozen=True)
class RowOrder:
    """The axis of the examples has the size `outer * rows * block`.

    Attributes:
        axis: Where the examples are.
        outer: Entries before an example, `None` if not known while tracing.
        block: Entries of one microbatch that lie together, or `None`.
    """

    axis: int
    outer: int | None
    block: int | None

    def rows_first(self, value: tf.Tensor, rows: int | tf.Tensor) -> tf.Tensor:
        """`[rows, positions, *rest]`, whatever the order was.

        All entries of an example along the first axes, up to that of the examples, are
        positions. The other of these axes are left with the size 1, so that the rest
        is where it was.
        """
        rest = _sizes(value)[self.axis + 1 :]
        if self.block is not None:
            parts = tf.reshape(value, [-1, rows, self.block, *rest])
        else:
            parts = tf.reshape(value, [self.outer, rows, -1, *rest])
        moved = tf.transpose(parts, [1, 0, *range(2, parts.shape.rank)])
        positions = -1
        if self.axis == 0 and self.outer is not None and self.block is not None:
            positions = self.outer * self.block
        return tf.reshape(moved, [rows, positions, *[1] * self.axis, *rest])

    def moved_to_front(self) -> RowOrder:
        """The order in a tensor whose axis of examples was made the first one."""
        return dataclasses.replace(self, axis=0)


class RowOrders:
    """The order of the rows in every tensor of a forward graph, read when needed.

    Args:
        losses: `[batch]`.
        sources: Where data enter.
        group: Examples per microbatch.
    """

    def __init__(self, losses: tf.Tensor, sources: Sequence[tf.Tensor], group: int):
        self._losses = losses
        self._sources = sources
        self._group = group

    def of(self, tensor: tf.Tensor) -> RowOrder | None:
        """`None` where the batch comes first, or where nothing better is known."""
        value = self._values.get(id(tensor))
        if value is None or not value.has_rows:
            return None
        outer, block = (_static(size) for size in (value.outer, value.block))
        if value.axis == 0 and outer == 1:
            return None
        if block is None and (value.axis or outer is None):
            return None
        return RowOrder(value.axis, outer, block)

    def positions(self, tensor: tf.Tensor) -> int | None:
        """How many entries of axis 0 belong to one microbatch, where it comes first."""
        value = self._values.get(id(tensor))
        if value is None or not value.has_rows or value.axis or value.outer != 1:
            return None
        return _static(value.block)

    @functools.cached_property
    def _values(self) -> dict:
        ops = graph_lib.ancestors([self._losses])
        if not any(map(_moves_first_axis, ops)):
            return {}
        # Imported late: the analysis walks graphs with the help of this package.
        from keras_dp_ext.verification.row_analysis import values_of_tensors

        return values_of_tensors(self._losses, self._sources, self._group)


def _moves_first_axis(op: tf.Operation) -> bool:
    if op.type == "Einsum":
        terms, result = op.get_attr("equation").decode().split("->")
        return not any(term[:1] == result[:1] for term in terms.split(","))
    if op.type != "Transpose":
        return False
    permutation = tf.get_static_value(op.inputs[1])
    return permutation is None or int(permutation[0]) != 0


def _static(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def _sizes(value: tf.Tensor) -> list:
    if value.shape.is_fully_defined():
        return value.shape.as_list()
    dynamic = tf.shape(value)
    return [
        dynamic[axis] if size is None else size for axis, size in enumerate(value.shape)
    ]
