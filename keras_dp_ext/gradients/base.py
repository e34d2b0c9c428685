"""What a BOUND stage sees: per-microbatch gradients, as lazy as possible."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class WeightedRows(NamedTuple):
    """Rows that are yet to be multiplied by a coefficient each.

    Multiplying and adding up is one pass over the rows then, instead of three.
    """

    rows: list[tf.Tensor]
    coefficients: tf.Tensor

    def sum(self) -> list[tf.Tensor]:
        if self.rows[0].shape[0] == 1:
            return [self.coefficients[0] * rows[0] for rows in self.rows]
        return [combine_rows(self.coefficients, rows) for rows in self.rows]


class OuterRows(NamedTuple):
    """Rows that are products of two vectors each, yet to be multiplied.

    So are the gradients of a dense layer: `left[b, i] * right[b, j]`.
    """

    left: tf.Tensor
    right: tf.Tensor

    def built(self) -> tf.Tensor:
        """`[chunk, inputs, outputs]`."""
        return self.left[:, :, tf.newaxis] * self.right[:, tf.newaxis]


def combine_rows(coefficients: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """`sum_b coefficients[b] * rows[b]`.

    What `tf.tensordot` computes, with 7 ops in place of 40: for each weight of a deep
    model these are most of the time that tracing takes.
    """
    shape = rows.shape[1:]
    size = shape.num_elements()
    if size is None:
        return tf.tensordot(coefficients, rows, axes=[[0], [0]])
    flat = tf.reshape(rows, [-1 if size else rows.shape[0] or 0, size])
    return tf.reshape(tf.matmul(tf.expand_dims(coefficients, 0), flat), shape)


# A map over a chunk of materialised gradients: one `[chunk, *shape]` tensor for
# each variable in, the same out. Row b of the output may depend on row b of the
# input only: that is what makes the sum's sensitivity that of one row.
RowMap = Callable[[list[tf.Tensor]], list[tf.Tensor] | WeightedRows]

# A map that adds up its rows itself, and so need not build those that are products.
# What it adds for row b may depend on row b only.
SumMap = Callable[[list[Any]], list[tf.Tensor]]


def sum_of_mapped(row_map: RowMap, rows: list[tf.Tensor]) -> list[tf.Tensor]:
    """For each tensor that `row_map` makes of `rows`, the sum over the rows."""
    mapped = row_map(rows)
    if isinstance(mapped, WeightedRows):
        return mapped.sum()
    return [tf.reduce_sum(result, axis=0) for result in mapped]


def one_for_each(coefficients: Any, variables: Sequence) -> list[tf.Tensor]:
    """One tensor of coefficients for each variable, also where all share one."""
    if isinstance(coefficients, (list, tuple)):
        return list(coefficients)
    return [coefficients] * len(variables)


def distinct(coefficients: Any) -> list[tf.Tensor]:
    """The tensors among them, each once."""
    # An array of one coefficient for each row is no list of tensors.
    several = isinstance(coefficients, (list, tuple))
    each = coefficients if several else [coefficients]
    return list({id(tensor): tensor for tensor in each}.values())


class PerExampleGradients(abc.ABC):
    """The gradients of every microbatch with respect to every variable.

    A *row* is one microbatch (one example, unless `num_microbatches` groups
    them). No method returns anything that mixes rows other than by the sum that
    its name announces, and rows that are not finite count as zero everywhere.

    Attributes:
        shapes: The static shape of each variable, in order.
    """

    shapes: list[tf.TensorShape]

    @property
    @abc.abstractmethod
    def num_rows(self) -> tf.Tensor:
        """Scalar int32 tensor: how many microbatches there are."""

    @abc.abstractmethod
    def finite_rows(self) -> tf.Tensor:
        """`[rows]` bool: which rows are finite; the others count as zero.

        A row so large that its norm overflows float32 may count as not finite.
        """

    @abc.abstractmethod
    def norm_squared(
        self, scales: Sequence[tf.Tensor | None] | None = None
    ) -> tf.Tensor:
        """`[rows]` float32: sum over all coordinates of `(g_i / s_i)**2`.

        Args:
            scales: For each variable a positive tensor of the variable's shape,
                or `None` for 1.
        """

    @abc.abstractmethod
    def norms_squared(self) -> list[tf.Tensor]:
        """For each variable `[rows]` float32: what it adds to `norm_squared()`."""

    @abc.abstractmethod
    def weighted_sum(
        self, coefficients: tf.Tensor | Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """For each variable, `sum_b coefficients[b] * g_b` in float32.

        Args:
            coefficients: `[rows]`; or a list with one such tensor for each variable. At
                most 1: they may multiply a factor that is huge beside another one that
                is tiny, and what is not finite there spoils the whole sum.
        """

    @abc.abstractmethod
    def sum_of(
        self,
        row_map: RowMap,
        bytes_limit: int | None = None,
        result_shapes: Sequence[tf.TensorShape] | None = None,
    ) -> list[tf.Tensor]:
        """For each variable, the sum over rows of `row_map(gradients)`.

        Rows are materialised in chunks of at most `bytes_limit` bytes (default:
        `chunk_bytes()`), two at a time: memory does not grow with the batch.

        Args:
            row_map: What is summed.
            bytes_limit: Of a chunk.
            result_shapes: What `row_map` makes of one row, where that is known; else
                it is traced once more to find out.
        """

    @abc.abstractmethod
    def sum_by(
        self,
        sum_map: SumMap,
        bytes_limit: int | None = None,
        joined: int | None = None,
        products: bool = True,
    ) -> list[tf.Tensor]:
        """For each variable, the sum over rows that `sum_map` makes of chunks of them.

        For maps that treat all coordinates alike: what they are given and what they
        return are matrices and their sums, in which variables lie side by side.

        Args:
            sum_map: What makes the sums.
            bytes_limit: Of a chunk, as for `sum_of`.
            joined: How many matrices there may be; by default as many as variables.
            products: Whether it takes `OuterRows`, too. Then large variables of which
                every row is a product come so, behind the matrices.
        """


class MaterializedGradients(PerExampleGradients):
    """Per-example gradients that exist already, as `[rows, *shape]` tensors.

    The reference for the lazy engine, and what the eager path uses.
    """

    def __init__(self, gradients: Sequence[tf.Tensor]):
        rows = [tf.cast(gradient, tf.float32) for gradient in gradients]
        self._finite = tf.reduce_all(
            [
                tf.reduce_all(
                    tf.math.is_finite(tf.reshape(row, [tf.shape(row)[0], -1])),
                    axis=1,
                )
                for row in rows
            ],
            axis=0,
        )
        self.shapes = [row.shape[1:] for row in rows]
        self._rows = [
            tf.where(
                tf.reshape(self._finite, [-1] + [1] * (row.shape.rank - 1)),
                row,
                tf.zeros_like(row),
            )
            for row in rows
        ]

    @property
    def num_rows(self) -> tf.Tensor:
        return tf.shape(self._rows[0])[0]

    def finite_rows(self) -> tf.Tensor:
        return self._finite

    def norms_squared(self) -> list[tf.Tensor]:
        return [
            tf.reduce_sum(tf.square(row), axis=list(range(1, row.shape.rank)))
            for row in self._rows
        ]

    def norm_squared(
        self, scales: Sequence[tf.Tensor | None] | None = None
    ) -> tf.Tensor:
        scales = scales or [None] * len(self._rows)
        total = tf.zeros([self.num_rows])
        for row, scale in zip(self._rows, scales, strict=True):
            scaled = row if scale is None else row / scale
            total += tf.reduce_sum(
                tf.square(scaled), axis=list(range(1, row.shape.rank))
            )
        return total

    def weighted_sum(self, coefficients: Any) -> list[tf.Tensor]:
        each = one_for_each(coefficients, self.shapes)
        return [
            WeightedRows([row], coefficient).sum()[0]
            for row, coefficient in zip(self._rows, each, strict=True)
        ]

    def sum_of(
        self,
        row_map: RowMap,
        bytes_limit: int | None = None,
        result_shapes: Sequence[Any] | None = None,
    ) -> list[tf.Tensor]:
        del bytes_limit, result_shapes  # The rows are in memory already.
        return sum_of_mapped(row_map, self._rows)

    def sum_by(
        self,
        sum_map: SumMap,
        bytes_limit: int | None = None,
        joined: int | None = None,
        products: bool = True,
    ) -> list[tf.Tensor]:
        del bytes_limit, joined, products
        return sum_map(self._rows)
