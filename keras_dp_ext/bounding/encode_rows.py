"""Encoding: every gradient is clamped, rank by rank, to a vector of a codebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.bounding.codebook import RANKINGS, Block
from keras_dp_ext.gradients.base import RowMap
from keras_dp_ext.gradients.rules.device import is_compiled

# Buckets of magnitudes are the leading bits of the float: 16 for each power of
# two, over 16 powers of two below the greatest magnitude of the row.
_MANTISSA_BITS = 4
_BUCKETS = 256
_SHIFT = 23 - _MANTISSA_BITS
_INFINITY_BITS = 0x7F800000
_MAGNITUDE_BITS = 0x7FFFFFFF

# From a function of tensors to one that computes the same.
Fuse = Callable[[Callable[..., Any]], Callable[..., Any]]


def encode_rows(
    blocks: Sequence[Block],
    ranking: str = "bucket",
    fuse: Fuse = lambda function: function,
) -> RowMap:
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
        fuse: Is given what passes over all coordinates of bucket ranking, and returns
            the same, compiled.

    Returns:
        A function of a list of `[chunk, *shape]` tensors that returns such a
        list. Rows of zeros stay zero; a row that is not finite becomes zero.

    Raises:
        ValueError: If `ranking` is not known.
    """
    check_one_of("ranking", ranking, RANKINGS)
    rank = _RankByBuckets(fuse) if ranking == "bucket" else _rank_exactly

    def encode(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        flat = [tf.reshape(row, [tf.shape(row)[0], -1]) for row in gradients]
        # All variables form one block, or each its own.
        groups = [flat] if len(blocks) == 1 else [[row] for row in flat]
        tops = [_top_bits(group) for group in groups]
        top = tf.reduce_max(tops, axis=0)
        sums, clamp_to = rank(groups, blocks, tops)
        chosen = _choose(sums, blocks, tf.bitcast(top, tf.float32))
        psis = [tf.gather(tf.constant(block.table), chosen) for block in blocks]
        encoded = clamp_to(psis, top < _INFINITY_BITS)
        return [
            tf.reshape(row, tf.shape(gradient))
            for row, gradient in zip(encoded, gradients, strict=True)
        ]

    return encode


def _magnitude_bits(row: tf.Tensor) -> tf.Tensor:
    """The magnitudes as integers, which order in the same way.

    In integers only: what takes a denormal for zero would rank it elsewhere.
    """
    return tf.bitwise.bitwise_and(tf.bitcast(row, tf.int32), _MAGNITUDE_BITS)


def _top_bits(group: Sequence[tf.Tensor]) -> tf.Tensor:
    """`[chunk]`: the greatest magnitude; infinity and NaN exceed all others."""
    return tf.reduce_max(
        [tf.reduce_max(_magnitude_bits(row), axis=1) for row in group], axis=0
    )


def _clamped(row: tf.Tensor, cap: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
    clamped = tf.maximum(tf.minimum(row, cap), -cap)
    return tf.where(finite[:, tf.newaxis], clamped, 0.0)


def _choose(sums: Any, blocks: Sequence[Block], top: tf.Tensor) -> tf.Tensor:
    """`[chunk]`: the index of the vector of the greatest cosine with each row."""
    similarity = tf.add_n(
        [
            tf.matmul(
                # Relative to the row's maximum, so that no product overflows.
                tf.math.divide_no_nan(magnitudes, top[:, tf.newaxis]),
                tf.constant(block.table),
                transpose_b=True,
            )
            for magnitudes, block in zip(sums, blocks, strict=True)
        ]
    )
    squares = sum(np.square(b.table.astype(np.float64)) @ b.widths for b in blocks)
    cosine = similarity / tf.constant(np.sqrt(squares), tf.float32)
    return tf.argmax(cosine, axis=1, output_type=tf.int32)


class _RankByBuckets:
    """Sums of magnitudes by step (approximate), and rows clamped to the caps.

    Only two passes go over all coordinates, and only these are fused: XLA takes a
    fiftieth of a second to compile each of its kernels, and what lies between them
    would be two dozen.
    """

    def __init__(self, fuse: Fuse):
        self._count = fuse(_counts_in_buckets)
        self._clamp = fuse(_clamped_by_buckets)

    def __call__(
        self,
        groups: Sequence[Sequence[tf.Tensor]],
        blocks: Sequence[Block],
        tops: Sequence[tf.Tensor],
    ) -> Any:
        """Sums for each block, and a function from its vectors to encoded rows."""
        counts = self._count(groups, tops)
        # How many coordinates are in a bucket or in one of greater magnitudes.
        reached = [tf.cumsum(count, axis=1) for count in counts]
        sums = [
            _sums_of_magnitudes(*one) for one in zip(reached, tops, blocks, strict=True)
        ]

        def clamp_to(psis: Sequence[tf.Tensor], finite: tf.Tensor) -> list[tf.Tensor]:
            caps = []
            for psi, upto, block in zip(psis, reached, blocks, strict=True):
                # The last position in each bucket is `upto - 1`.
                ends = tf.constant(block.ends, tf.int32)[tf.newaxis]
                step = _counts_at_most(ends, upto - 1)
                caps.append(tf.gather(psi, step, batch_dims=1))
            return self._clamp(groups, tops, caps, finite)

        return sums, clamp_to


def _cells(row: tf.Tensor, top: tf.Tensor) -> tf.Tensor:
    """Where each coordinate's bucket is in the flattened buckets of all rows.

    Bucket 0 holds the greatest magnitudes, the last all tiny ones.
    """
    first_bucket = tf.range(tf.shape(top)[0])[:, tf.newaxis] * _BUCKETS
    top_code = tf.bitwise.right_shift(top, _SHIFT)[:, tf.newaxis]
    code = tf.bitwise.right_shift(_magnitude_bits(row), _SHIFT)
    return first_bucket + tf.minimum(top_code - code, _BUCKETS - 1)


def _counts_in_buckets(groups: Any, tops: Any) -> list[tf.Tensor]:
    """For each group `[chunk, buckets]`: how many coordinates are in each."""
    found = []
    for group, top in zip(groups, tops, strict=True):
        num_rows = tf.shape(top)[0]
        cells = [tf.reshape(_cells(row, top), [-1]) for row in group]
        counts = [
            tf.math.unsorted_segment_sum(tf.ones_like(cell), cell, num_rows * _BUCKETS)
            for cell in cells
        ]
        found.append(tf.reshape(tf.add_n(counts), [num_rows, _BUCKETS]))
    return found


def _clamped_by_buckets(
    groups: Any, tops: Any, caps: Any, finite: tf.Tensor
) -> list[tf.Tensor]:
    """Rows of which each coordinate is clamped to the cap of its bucket."""
    return [
        _clamped(row, tf.gather(tf.reshape(cap, [-1]), _cells(row, top)), finite)
        for group, top, cap in zip(groups, tops, caps, strict=True)
        for row in group
    ]


def _sums_of_magnitudes(reached: tf.Tensor, top: tf.Tensor, block: Block) -> tf.Tensor:
    """`[chunk, steps]`: as if all magnitudes of a step were that in its middle."""
    middles = tf.constant(block.ends - (block.widths + 1) // 2, tf.int32)
    bucket = _counts_at_most(reached, middles[tf.newaxis])
    halvings = tf.cast(bucket, tf.float32) / 2.0**_MANTISSA_BITS
    magnitude = tf.bitcast(top, tf.float32)[:, tf.newaxis] * tf.pow(2.0, -halvings)
    magnitude = tf.where(bucket < _BUCKETS - 1, magnitude, 0.0)
    return magnitude * tf.constant(block.widths, tf.float32)


def _counts_at_most(ascending: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """How many entries of each ascending row are at most each limit of that row.

    One of the two may be a single row, which counts for all rows of the other.
    """
    if is_compiled():
        several = ascending.shape[0] != 1
        first = tf.range(tf.shape(ascending)[0])[:, tf.newaxis] if several else 0
        return _count_at_most(ascending, limits, first * ascending.shape[-1])
    if limits.shape[0] == 1:
        limits = tf.tile(limits, [tf.shape(ascending)[0], 1])
        return tf.searchsorted(ascending, limits, side="right")
    counts = tf.searchsorted(ascending, tf.reshape(limits, [1, -1]), side="right")
    return tf.reshape(counts, tf.shape(limits))


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


def _rank_exactly(
    groups: Sequence[Sequence[tf.Tensor]], blocks: Sequence[Block], tops: Any
) -> Any:
    """As `_RankByBuckets`, by sorting: Algorithm 2 as printed."""
    del tops
    sums, orders, steps = [], [], []
    for group, block in zip(groups, blocks, strict=True):
        magnitude = tf.abs(tf.concat(group, axis=1))
        step_of_position = tf.searchsorted(
            tf.constant(block.ends, tf.int32), tf.range(block.size), side="right"
        )
        order = tf.argsort(magnitude, axis=1, direction="DESCENDING", stable=True)
        ranked = tf.gather(magnitude, order, batch_dims=1)
        by_step = tf.math.unsorted_segment_sum(
            tf.transpose(ranked), step_of_position, block.ends.size
        )
        sums.append(tf.transpose(by_step))
        orders.append(order)
        steps.append(step_of_position)

    def clamp_to(psis: Sequence[tf.Tensor], finite: tf.Tensor) -> list[tf.Tensor]:
        encoded = []
        for group, psi, order, step in zip(groups, psis, orders, steps, strict=True):
            position = tf.argsort(order, axis=1)
            caps = tf.gather(psi, tf.gather(step, position), batch_dims=1)
            caps = tf.split(caps, [row.shape[1] for row in group], axis=1)
            pairs = zip(group, caps, strict=True)
            encoded += [_clamped(row, cap, finite) for row, cap in pairs]
        return encoded

    return sums, clamp_to
