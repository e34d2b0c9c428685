"""Encoding: every gradient is clamped, rank by rank, to a vector of a codebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.bounding.bucket_ranking import (
    Fuse,
    RankByBuckets,
    clamped,
    magnitude_bits,
)
from keras_dp_ext.bounding.codebook import RANKINGS, Block
from keras_dp_ext.gradients.base import OuterRows
from keras_dp_ext.gradients.row_tensors import have_finite_products

_INFINITY_BITS = 0x7F800000


def encode_rows(
    blocks: Sequence[Block],
    ranking: str = "bucket",
    fuse: Fuse = lambda function: function,
    summed: bool = False,
) -> Callable[[list[Any]], list[tf.Tensor]]:
    """A row map that encodes a chunk of gradients (Nasr et al., Algorithm 2).

    For each row the vector psi of the greatest cosine similarity to the sorted
    magnitudes is chosen. (The paper prints the arg min of the similarity; its
    Eq. 3 says that the least *distance* is meant.) Then the coordinate whose
    magnitude has position t becomes `clip(g_i, -psi_t, psi_t)`.

    The privacy of the result rests on one property only: sorted by magnitude, an
    encoded row is dominated by one vector of the codebook, entry by entry. Both
    rankings have it:

    - "exact" sorts. It is the reference, and costs ten ordinary training steps.
    - "bucket" counts how many magnitudes fall into each of 512 buckets and gives
      every coordinate of a bucket the psi of the bucket's *last* position, the
      least one. Coordinates that differ by less than 5% may be clamped as if
      they were equal, or the one for the other, never by more than ranks allow. A row
      of equal magnitudes is one bucket, so it is clamped to the least entry of psi.

    Which coordinate has which position does not matter for privacy either: if each
    has one of its own and is at most the psi of it, then the sorted row is dominated by
    psi. So it is enough that what is counted in a bucket is what is clamped by it: for
    rows that are products of two vectors, buckets and their counts come from these
    (the logarithm of a product is a sum, and counts of sums are a convolution).

    Which vector is chosen does not matter for privacy, so the choice may use
    approximate magnitudes.

    Args:
        blocks: From `Codebook.blocks`: one for all variables together, or one
            for each variable.
        ranking: "bucket" or "exact".
        fuse: Is given what passes over all coordinates of bucket ranking, and returns
            the same, compiled.
        summed: Whether sums over the rows are returned.

    Returns:
        A function of a list of `[chunk, *shape]` tensors that returns such a
        list. Rows of zeros stay zero; a row that is not finite becomes zero. By
        buckets, some may be `OuterRows`.

    Raises:
        ValueError: If `ranking` is not known.
    """
    check_one_of("ranking", ranking, RANKINGS)
    rank = RankByBuckets(fuse, summed) if ranking == "bucket" else _rank_exactly

    def encode(gradients: list[Any]) -> list[tf.Tensor]:
        flat = [
            row
            if isinstance(row, OuterRows)
            else tf.reshape(row, [tf.shape(row)[0], -1])
            for row in gradients
        ]
        # All variables form one block, or each its own.
        groups = [flat] if len(blocks) == 1 else [[row] for row in flat]
        finite = tf.reduce_all([_is_finite(row) for row in flat], axis=0)
        sums, clamp_to = rank(groups, blocks)
        chosen = _choose(sums, blocks)
        encoded = clamp_to(chosen, finite)
        if summed and ranking == "exact":
            encoded = [tf.reduce_sum(row, axis=0) for row in encoded]
        return [
            row
            if isinstance(gradient, OuterRows)
            else tf.reshape(row, tf.shape(gradient)[1 if summed else 0 :])
            for row, gradient in zip(encoded, gradients, strict=True)
        ]

    return encode


def _is_finite(row: tf.Tensor | OuterRows) -> tf.Tensor:
    """`[chunk]`: which rows are finite."""
    if isinstance(row, OuterRows):
        return have_finite_products(*row)
    return tf.reduce_max(magnitude_bits(row), axis=1) < _INFINITY_BITS


def _choose(sums: Any, blocks: Sequence[Block]) -> tf.Tensor:
    """`[chunk]`: the index of the vector of the greatest cosine with each row."""
    tables = [block.table.astype(np.float64) for block in blocks]
    squares = sum(
        np.square(table) @ block.widths
        for table, block in zip(tables, blocks, strict=True)
    )
    cosine = tf.add_n(
        [
            tf.matmul(magnitudes, tf.constant(table.T / np.sqrt(squares), tf.float32))
            for magnitudes, table in zip(sums, tables, strict=True)
        ]
    )
    return tf.argmax(cosine, axis=1, output_type=tf.int32)


def _rank_exactly(
    groups: Sequence[Sequence[tf.Tensor]], blocks: Sequence[Block]
) -> Any:
    """As `_RankByBuckets`, by sorting: Algorithm 2 as printed."""
    overall = tf.reduce_max(
        [tf.reduce_max(tf.abs(row), axis=1) for group in groups for row in group],
        axis=0,
    )
    sums, orders, steps = [], [], []
    for group, block in zip(groups, blocks, strict=True):
        magnitude = tf.abs(tf.concat(group, axis=1))
        step_of_position = tf.searchsorted(
            tf.constant(block.ends, tf.int32), tf.range(block.size), side="right"
        )
        order = tf.argsort(magnitude, axis=1, direction="DESCENDING", stable=True)
        ranked = tf.gather(magnitude, order, batch_dims=1)
        # Relative to the row's maximum, so that no product overflows.
        relative = tf.math.divide_no_nan(ranked, overall[:, tf.newaxis])
        by_step = tf.math.unsorted_segment_sum(
            tf.transpose(relative), step_of_position, block.ends.size
        )
        sums.append(tf.transpose(by_step))
        orders.append(order)
        steps.append(step_of_position)

    def clamp_to(chosen: tf.Tensor, finite: tf.Tensor) -> list[tf.Tensor]:
        psis = [tf.gather(tf.constant(block.table), chosen) for block in blocks]
        encoded = []
        for group, psi, order, step in zip(groups, psis, orders, steps, strict=True):
            position = tf.argsort(order, axis=1)
            caps = tf.gather(psi, tf.gather(step, position), batch_dims=1)
            caps = tf.split(caps, [row.shape[1] for row in group], axis=1)
            pairs = zip(group, caps, strict=True)
            encoded += [clamped(row, cap, finite) for row, cap in pairs]
        return encoded

    return sums, clamp_to
