"""Cutting the batch axis into microbatches, with static shapes where possible."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.leading_axis import batches_per_axis
from keras_dp_ext.gradients.row_order import RowOrder, RowOrders
from keras_dp_ext.gradients.row_tensors import reshaped

# Stands for the unknown batch size when shapes are inferred.
ASSUMED_BATCH = 16


class Split:
    """Knows how many rows (microbatches) a tensor's first axis holds.

    The first axis of an intermediate tensor is the batch, or the batch merged
    with inner axes (`[batch * time, features]`). Both split into
    `[rows, positions, ...]`; that the order is right is verified by the probe.

    Args:
        losses: `[batch]`.
        group: Examples per microbatch.
        orders: Where the examples are in tensors that are not batch-major.
        sources: What has a row for each example from the start: data and draws.
    """

    def __init__(
        self,
        losses: tf.Tensor,
        group: int = 1,
        orders: RowOrders | None = None,
        sources: Sequence[tf.Tensor] = (),
    ):
        self._losses = losses
        self._orders = orders
        self._sources = sources
        self._batch = losses.shape[0]
        self._group = group
        self._read: dict[int, int] | None = None
        self._inferred: dict[int, tf.TensorShape] | None = None
        self._declared: dict[int, tuple[tf.Tensor, int]] = {}
        if self._batch is not None and self._batch % group:
            raise ValueError(
                "The number of examples in a batch must be a multiple of the "
                f"examples per microbatch. Received: batch of {self._batch}, "
                f"microbatches of {group} examples."
            )

    @property
    def batch(self) -> int | None:
        """The number of examples, if it is known while tracing."""
        return self._batch

    @property
    def rows(self) -> int | tf.Tensor:
        if self._batch is not None:
            return self._batch // self._group
        return tf.shape(self._losses)[0] // self._group

    def __call__(
        self, value: tf.Tensor, like: tf.Tensor | None = None, moved: bool = False
    ) -> tf.Tensor:
        """`[rows, positions, *rest]` from `[rows * positions, *rest]`.

        Args:
            value: The tensor.
            like: A tensor of the forward graph with the same first axis, if
                `value` is not one itself.
            moved: Whether the axis along which the examples of `like` lie is the first
                one of `value`.
        """
        reference = value if like is None else like
        order = self._order(reference)
        if order is not None and moved:
            order = order.moved_to_front()
        if order is not None:
            return order.rows_first(value, self.rows)
        positions = self._positions(reference)
        rows = self.rows if positions is None or self._batch is not None else -1
        return reshaped(
            value, [rows, -1 if positions is None else positions, *_rest(value)]
        )

    def axis(self, tensor: tf.Tensor) -> int:
        """The axis of a tensor of the forward graph along which the examples lie."""
        order = self._order(tensor)
        return 0 if order is None else order.axis

    def _order(self, tensor: tf.Tensor) -> RowOrder | None:
        return None if self._orders is None else self._orders.of(tensor)

    def static_shape(self, tensor: tf.Tensor) -> tf.TensorShape:
        """The shape of a tensor of the forward graph that has no batch axis.

        Sizes that are read off the data at run time are lost where the batch size is
        not known while tracing. They are those for any other batch size.
        """
        if tensor.shape.is_fully_defined() or self._batch is not None:
            return tensor.shape
        return self._inferred_shape(tensor)

    def declare(self, tensor: tf.Tensor, positions: int) -> None:
        """Tells how many entries of axis 0 of a new tensor belong to one example."""
        # The tensor is kept: ids of what is gone are given away again.
        self._declared[id(tensor)] = (tensor, positions)

    def _positions(self, tensor: tf.Tensor) -> int | None:
        """Static number of entries of axis 0 in one microbatch."""
        if id(tensor) in self._declared:
            return self._declared[id(tensor)][1] * self._group
        if self._batch is not None:
            first, batch = tensor.shape[0], self._batch
        elif (length := self._length_as_read(tensor)) is not None:
            return length * self._group
        else:
            first, batch = self._inferred_shape(tensor)[0], ASSUMED_BATCH
        if first is None and self._orders is not None:
            return self._orders.positions(tensor)  # The shape got lost in a loop.
        if first is None or first % batch:
            return None
        return first // batch * self._group

    def _length_as_read(self, tensor: tf.Tensor) -> int | None:
        if self._read is None:
            ops = graph_lib.ancestors([self._losses])
            self._read = batches_per_axis(ops, self._sources)
        return self._read.get(id(tensor))

    def _inferred_shape(self, tensor: tf.Tensor) -> tf.TensorShape:
        if self._inferred is None:
            self._inferred = _infer_shapes(self._losses)
        return self._inferred.get(id(tensor), tensor.shape)


def _rest(value: tf.Tensor) -> list:
    if value.shape[1:].is_fully_defined():
        return value.shape[1:].as_list()
    dynamic = tf.shape(value)
    return [
        dynamic[axis] if size is None else size
        for axis, size in enumerate(value.shape)
        if axis > 0
    ]


def _infer_shapes(losses: tf.Tensor) -> dict[int, tf.TensorShape]:
    """Static shapes of the forward graph for a batch of `ASSUMED_BATCH`."""
    ops = graph_lib.ancestors([losses])
    scratch = tf_internals.scratch_graph("shapes")
    with scratch.as_default():
        replaced = {}
        for source in graph_lib.data_sources(ops, losses.shape[0]):
            shape = source.shape
            if shape.rank and shape[0] is None:
                shape = tf.TensorShape([ASSUMED_BATCH, *shape[1:]])
            replaced[id(source)] = tf.compat.v1.placeholder(source.dtype, shape)
        for op in ops:
            if op.type == "Placeholder" and id(op.outputs[0]) not in replaced:
                captured = graph_lib.captured_source(op.outputs[0])
                if captured is not None:
                    replaced[id(op.outputs[0])] = tf_internals.capture(
                        scratch, captured
                    )
        copies = copies_lib.copy_ops(ops, replaced)
    return {tensor: copy.shape for tensor, copy in copies.items()}
