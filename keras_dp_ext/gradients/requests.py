"""What a bound has asked of per-example gradients: the probe tests these very ops."""

from __future__ import annotations

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)
class Norms:
    """Squared norms that were asked for, with their scales.

    Attributes:
        scales: For each variable, or `None`.
        values: `[rows]`.
        places: Numbers of the variables over which they go; `None` for all.
    """

    scales: list[tf.Tensor | None] | None
    values: tf.Tensor
    places: list[int] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedSums:
    """Sums that were asked for, with their coefficients, each tensor once."""

    coefficients: list[tf.Tensor]
    values: list[tf.Tensor]


@dataclasses.dataclass(frozen=True, eq=False)
class ChunkLoop:
    """A loop over chunks of rows.

    Attributes:
        done: Of the loop's body: how many rows were done before. It is a variable of
            the loop.
        start: Of the body: the first row of the chunk.
        more: Of the loop's condition.
        chunk: Outside of the loop: how many rows a chunk has, where that is computed.
        result: Something that the loop returns.
    """

    done: tf.Tensor
    start: tf.Tensor
    more: tf.Tensor
    chunk: tf.Tensor | None
    result: tf.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows that a map was given.

    Attributes:
        rows: `[chunk, ...]`, in the body of `loop`, if there is one.
        loop: `None` if one chunk is all.
        sums: What the map makes of `rows`, added up over rows; in the same order.
        values: What becomes of `sums`, for each variable. `None` where the rows are
            those of the variables, one by one.
    """

    rows: list[tf.Tensor]
    loop: ChunkLoop | None
    sums: list[tf.Tensor]
    values: list[tf.Tensor] | None = None
