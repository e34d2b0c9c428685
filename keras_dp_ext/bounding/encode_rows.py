"""Encoding: every gradient is clamped, rank by rank, to a vector of a codebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.bounding.codebook import RANKINGS, Block
from keras_dp_ext.gradients.base import RowMap

# Buckets of magnitudes are the leading bits of the float: 16 for each power of
# two, over 16 powers of two below the greatest magnitude of the row.
_MANTISSA_BITS = 4
_BUCKETS = 256
_SHIFT = 23 - _MANTISSA_BITS
_INFINITY_BITS = 0x7F800000


def encode_rows(blocks: Sequence[Block], ranking: str = "bucket") -> RowMap:
    """A row map that encodes a chunk of gradients (Nasr et al., Algorithm 2).

    For each row the vector psi of the greatest cosine similarity to the sorted
    magnitudes is chosen. (The paper prints the arg min of the similarity; its
    Eq. 3 says that the least *distance* is meant.) Then the coordinate whose
    magnitude has position t becomes `clip(g_i, -psi_t, psi_t)`.

    The privacy of the result rests on one property only: sorted by magnitude, an
    encoded row is dominated by one vector of the codebook, entry by entry. Both
    rankings have it:

    - "exact" sorts. It is the reference, and costs ten ordinary training steps.
    - "bucket" counts how many magnitudes fall into each of 256 buckets and gives
      every coordinate of a bucket the psi of the bucket's *last* position, the
      least one. Coordinates that differ by less than 6% may be clamped as if
      they were equal, never by more than their rank allows. A row of equal
      magnitudes is one bucket, so it is clamped to the least entry of psi.

    Which vector is chosen does not matter for privacy, so the choice may use
    approximate magnitudes.

    Args:
        blocks: From `Codebook.blocks`: one for all variables together, or one
            for each variable.
        ranking: "bucket" or "exact".

    Returns:
        A function of a list of `[chunk, *shape]` tensors that returns such a
        list. Rows of zeros stay zero; a row that is not finite becomes zero.

    Raises:
        ValueError: If `ranking` is not known.
    """
    check_one_of("ranking", ranking, RANKINGS)
    rank = _rank_by_buckets if ranking == "bucket" else _rank_exactly

    def encode(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        flat = [tf.reshape(row, [tf.shape(row)[0], -1]) for row in gradients]
        # All variables form one block, or each its own.
        groups = [flat] if len(blocks) == 1 else [[row] for row in flat]
        top = tf.reduce_max([_top_bits(group) for group in groups], axis=0)
        finite = (top < _INFINITY_BITS)[:, tf.newaxis]
        rankings = [
            rank(group, block) for group, block in zip(groups, blocks, strict=True)
        ]
        chosen = _choose(rankings, blocks, tf.bitcast(top, tf.float32))
        encoded = []
        for group, block, (_, caps_of) in zip(groups, blocks, rankings, strict=True):
            psi = tf.gather(tf.constant(block.table), chosen)
            for row, cap in zip(group, caps_of(psi), strict=True):
                clamped = tf.maximum(tf.minimum(row, cap), -cap)
                encoded.append(tf.where(finite, clamped, 0.0))
        return [
            tf.reshape(row, tf.shape(gradient))
            for row, gradient in zip(encoded, gradients, strict=True)
        ]

    return encode


def _magnitude_bits(row: tf.Tensor) -> tf.Tensor:
    """The magnitudes as integers, which order in the same way."""
    return tf.bitcast(tf.abs(row), tf.int32)


def _top_bits(group: Sequence[tf.Tensor]) -> tf.Tensor:
    """`[chunk]`: the greatest magnitude; infinity and NaN exceed all others."""
    return tf.reduce_max(
        [tf.reduce_max(_magnitude_bits(row), axis=1) for row in group], axis=0
    )


def _choose(rankings: Any, blocks: Sequence[Block], top: tf.Tensor) -> tf.Tensor:
    """`[chunk]`: the index of the vector of the greatest cosine with each row."""
    similarity = tf.add_n(
        [
            tf.matmul(
                # Relative to the row's maximum, so that no product overflows.
                tf.math.divide_no_nan(sums(), top[:, tf.newaxis]),
                tf.constant(block.table),
                transpose_b=True,
            )
            for (sums, _), block in zip(rankings, blocks, strict=True)
        ]
    )
    squares = sum(np.square(b.table.astype(np.float64)) @ b.widths for b in blocks)
    cosine = similarity / tf.constant(np.sqrt(squares), tf.float32)
    return tf.argmax(cosine, axis=1, output_type=tf.int32)


def _rank_by_buckets(group: Sequence[tf.Tensor], block: Block) -> Any:
    """Sums of magnitudes by step (approximate), and caps for every coordinate."""
    num_rows = tf.shape(group[0])[0]
    top = _top_bits(group)
    first_bucket = tf.range(num_rows)[:, tf.newaxis] * _BUCKETS
    top_code = tf.bitwise.right_shift(top, _SHIFT)[:, tf.newaxis]

    def cells(row: tf.Tensor) -> tf.Tensor:
        """Bucket 0 holds the greatest magnitudes, the last all tiny ones."""
        code = tf.bitwise.right_shift(_magnitude_bits(row), _SHIFT)
        return first_bucket + tf.minimum(top_code - code, _BUCKETS - 1)

    cell = [cells(row) for row in group]
    counts = tf.add_n(
        [
            tf.math.unsorted_segment_sum(
                tf.ones_like(tf.reshape(index, [-1])),
                tf.reshape(index, [-1]),
                num_rows * _BUCKETS,
            )
            for index in cell
        ]
    )
    # How many coordinates are in a bucket or in one of greater magnitudes.
    reached = tf.cumsum(tf.reshape(counts, [num_rows, _BUCKETS]), axis=1)

    def sums() -> tf.Tensor:
        middles = tf.constant(block.ends - (block.widths + 1) // 2, tf.int32)
        bucket = _count_at_most(reached, middles[tf.newaxis], first_bucket)
        halvings = tf.cast(bucket, tf.float32) / 2.0**_MANTISSA_BITS
        magnitude = tf.bitcast(top, tf.float32)[:, tf.newaxis] * tf.pow(2.0, -halvings)
        magnitude = tf.where(bucket < _BUCKETS - 1, magnitude, 0.0)
        return magnitude * tf.constant(block.widths, tf.float32)

    def caps_of(psi: tf.Tensor) -> list[tf.Tensor]:
        # The last position in each bucket is `reached - 1`.
        step = _count_at_most(tf.constant(block.ends, tf.int32), reached - 1)
        caps = tf.reshape(tf.gather(psi, step, batch_dims=1), [-1])
        return [tf.gather(caps, index) for index in cell]

    return sums, caps_of


def _count_at_most(
    ascending: tf.Tensor, limits: tf.Tensor, first: tf.Tensor | int = 0
) -> tf.Tensor:
    """How many entries of an ascending sequence are at most each of `limits`.

    A binary search: `tf.searchsorted` compares all pairs under XLA. In a loop, whose
    result XLA computes once, not again for each coordinate that looks it up.

    Args:
        ascending: The sequence, or one in each row of a matrix.
        limits: Integers; broadcast against `first`.
        first: Where the row begins in the flattened matrix.
    """
    length = ascending.shape[-1]
    flat = tf.reshape(ascending, [-1])

    def search(step: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        more = count + step
        entry = tf.gather(flat, first + tf.minimum(more, length) - 1)
        return step // 2, tf.where((more <= length) & (entry <= limits), more, count)

    _, count = tf.while_loop(
        lambda step, count: step > 0,
        search,
        (tf.constant(2 ** (length.bit_length() - 1)), tf.zeros_like(limits + first)),
    )
    return count


def _rank_exactly(group: Sequence[tf.Tensor], block: Block) -> Any:
    """As `_rank_by_buckets`, by sorting: Algorithm 2 as printed."""
    magnitude = tf.abs(tf.concat(group, axis=1))
    step_of_position = tf.searchsorted(
        tf.constant(block.ends, tf.int32), tf.range(block.size), side="right"
    )
    order = tf.argsort(magnitude, axis=1, direction="DESCENDING", stable=True)

    def sums() -> tf.Tensor:
        ranked = tf.gather(magnitude, order, batch_dims=1)
        by_step = tf.math.unsorted_segment_sum(
            tf.transpose(ranked), step_of_position, block.ends.size
        )
        return tf.transpose(by_step)

    def caps_of(psi: tf.Tensor) -> list[tf.Tensor]:
        position = tf.argsort(order, axis=1)
        caps = tf.gather(psi, tf.gather(step_of_position, position), batch_dims=1)
        return tf.split(caps, [row.shape[1] for row in group], axis=1)

    return sums, caps_of
