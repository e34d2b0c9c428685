"""Encoding: every gradient is clamped, rank by rank, to a vector of a codebook."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.bounding.codebook import RANKINGS, Block
from keras_dp_ext.gradients.base import OuterRows
from keras_dp_ext.gradients.row_tensors import have_finite_products
from keras_dp_ext.gradients.rules.device import is_compiled

# Buckets of magnitudes: 32 for each power of two, over 16 powers of two below the
# greatest magnitude of the row.
_BUCKETS_PER_OCTAVE = 32
_BUCKETS = 512
_CODE_OF_ONE = 127 * _BUCKETS_PER_OCTAVE
_INFINITY_BITS = 0x7F800000
_MAGNITUDE_BITS = 0x7FFFFFFF

# From a function of tensors to one that computes the same.
Fuse = Callable[[Callable[..., Any]], Callable[..., Any]]


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
    rank = _RankByBuckets(fuse, summed) if ranking == "bucket" else _rank_exactly

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
        psis = [tf.gather(tf.constant(block.table), chosen) for block in blocks]
        encoded = clamp_to(psis, finite)
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
    return tf.reduce_max(_magnitude_bits(row), axis=1) < _INFINITY_BITS


def _magnitude_bits(row: tf.Tensor) -> tf.Tensor:
    """The magnitudes as integers, which order in the same way.

    In integers only: what takes a denormal for zero would rank it elsewhere.
    """
    return tf.bitwise.bitwise_and(tf.bitcast(row, tf.int32), _MAGNITUDE_BITS)


def _clamped(row: tf.Tensor, cap: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
    clamped = tf.maximum(tf.minimum(row, cap), -cap)
    return tf.where(tf.reshape(finite, [-1, *[1] * (row.shape.rank - 1)]), clamped, 0.0)


def _choose(sums: Any, blocks: Sequence[Block]) -> tf.Tensor:
    """`[chunk]`: the index of the vector of the greatest cosine with each row."""
    similarity = tf.add_n(
        [
            tf.matmul(magnitudes, tf.constant(block.table), transpose_b=True)
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

    def __init__(self, fuse: Fuse, summed: bool):
        self._count = fuse(_counts_in_buckets)
        clamp = functools.partial(_clamped_by_buckets, summed=summed)
        self._clamp = fuse(clamp)

    def __call__(
        self,
        groups: Sequence[Sequence[tf.Tensor | OuterRows]],
        blocks: Sequence[Block],
    ) -> Any:
        """Sums for each block, and a function from its vectors to encoded rows."""
        tops = [tf.reduce_max(list(map(_top_code, group)), axis=0) for group in groups]
        members = [
            [
                _ProductCodes(row, top) if isinstance(row, OuterRows) else row
                for row in group
            ]
            for group, top in zip(groups, tops, strict=True)
        ]
        matrices = [[row for row in group if tf.is_tensor(row)] for group in members]
        counts = self._count(matrices, tops)
        counts = [
            tf.add_n([count, *(one.counts() for one in group if not tf.is_tensor(one))])
            for count, group in zip(counts, members, strict=True)
        ]
        # How many coordinates are in a bucket or in one of greater magnitudes.
        reached = [tf.cumsum(count, axis=1) for count in counts]
        below = [top - tf.reduce_max(tops, axis=0) for top in tops]
        sums = [
            _sums_of_magnitudes(*one)
            for one in zip(reached, below, blocks, strict=True)
        ]

        def clamp_to(psis: Sequence[tf.Tensor], finite: tf.Tensor) -> list[tf.Tensor]:
            caps = []
            for psi, upto, block in zip(psis, reached, blocks, strict=True):
                # The last position in each bucket is `upto - 1`.
                ends = tf.constant(block.ends, tf.int32)[tf.newaxis]
                step = _counts_at_most(ends, upto - 1)
                caps.append(tf.gather(psi, step, batch_dims=1))
            given = [
                [row if tf.is_tensor(row) else row.factors for row in group]
                for group in members
            ]
            return self._clamp(given, tops, caps, finite)

        return sums, clamp_to


class _ProductCodes:
    """Buckets of the coordinates of rows that are products, from their factors.

    A coordinate's bucket is the sum of two offsets, or the last one if that is less.
    Both passes add the same integers, so they agree on every coordinate.
    """

    def __init__(self, rows: OuterRows, top: tf.Tensor):
        left, right = (_code(_magnitude_bits(part)) for part in rows)
        highest = tf.reduce_max(right, axis=1, keepdims=True)
        left = top[:, tf.newaxis] - (left + highest - _CODE_OF_ONE)
        self._offsets = [
            tf.minimum(offset, _BUCKETS - 1) for offset in (left, highest - right)
        ]
        self.factors = (*rows, *self._offsets)

    def counts(self) -> tf.Tensor:
        """`[chunk, buckets]`: how many coordinates are in each.

        The counts of sums are a convolution of the counts. By Fourier transforms in
        float64, whose error is below 1e-4 for 2^31 coordinates: rounding makes it exact.
        """
        left, right = (
            tf.signal.rfft(
                tf.cast(_histogram(offset), tf.float64), fft_length=[2 * _BUCKETS]
            )
            for offset in self._offsets
        )
        pairs = tf.signal.irfft(left * right, fft_length=[2 * _BUCKETS])
        pairs = tf.cast(tf.round(pairs), tf.int32)
        last = tf.reduce_sum(pairs[:, _BUCKETS - 1 :], axis=1, keepdims=True)
        return tf.concat([pairs[:, : _BUCKETS - 1], last], axis=1)


def _histogram(numbers: tf.Tensor) -> tf.Tensor:
    """`[chunk, buckets]`: how often each number is in each row."""
    rows = tf.shape(numbers)[0]
    cells = numbers + tf.range(rows)[:, tf.newaxis] * _BUCKETS
    counts = tf.math.unsorted_segment_sum(tf.ones_like(numbers), cells, rows * _BUCKETS)
    return tf.reshape(counts, [rows, _BUCKETS])


def _code(bits: tf.Tensor) -> tf.Tensor:
    """32 times the logarithm (to base 2, of magnitudes from their bits) and a constant.

    In integers only, so that it is the same number wherever it is computed. Leading bits
    are a logarithm that is linear within each power of two, `e + m`; the parabola
    brings it within 0.01 of `e + log2(1 + m)`. It never falls where magnitudes grow.
    """
    position = tf.bitwise.right_shift(bits, 12)
    rest = tf.bitwise.bitwise_and(position, 2047)
    bend = tf.bitwise.right_shift(rest * (2048 - rest), 11) * 705
    position += tf.bitwise.right_shift(bend, 11)
    # 2048 of these to each power of two.
    half = 1024 // _BUCKETS_PER_OCTAVE
    return (position + half) // (2 * half)


def _top_code(row: tf.Tensor | OuterRows) -> tf.Tensor:
    """`[chunk]`: the greatest code of each row."""
    if isinstance(row, OuterRows):
        left, right = map(_top_code, row)
        return left + right - _CODE_OF_ONE
    return _code(tf.reduce_max(_magnitude_bits(row), axis=1))


def _cells(row: tf.Tensor, top: tf.Tensor) -> tf.Tensor:
    """Where each coordinate's bucket is in the flattened buckets of all rows.

    Bucket 0 holds the greatest magnitudes, the last all tiny ones.
    """
    first_bucket = tf.range(tf.shape(top)[0])[:, tf.newaxis] * _BUCKETS
    code = _code(_magnitude_bits(row))
    return first_bucket + tf.minimum(top[:, tf.newaxis] - code, _BUCKETS - 1)


def _counts_in_buckets(groups: Any, tops: Any) -> list[tf.Tensor]:
    """For each group `[chunk, buckets]`: how many coordinates are in each."""
    found = []
    for group, top in zip(groups, tops, strict=True):
        num_rows = tf.shape(top)[0]
        cells = [tf.reshape(_cells(row, top), [-1]) for row in group]
        counts = [tf.zeros([num_rows * _BUCKETS], tf.int32)]
        counts += [
            tf.math.unsorted_segment_sum(tf.ones_like(cell), cell, num_rows * _BUCKETS)
            for cell in cells
        ]
        found.append(tf.reshape(tf.add_n(counts), [num_rows, _BUCKETS]))
    return found


def _clamped_by_buckets(
    groups: Any, tops: Any, caps: Any, finite: tf.Tensor, summed: bool
) -> list[tf.Tensor]:
    """Rows of which each coordinate is clamped to the cap of its bucket; or their sum."""
    encoded = []
    for group, top, cap in zip(groups, tops, caps, strict=True):
        for row in group:
            if tf.is_tensor(row):
                found = tf.gather(tf.reshape(cap, [-1]), _cells(row, top))
            else:
                left, right, left_offset, right_offset = row
                row = OuterRows(left, right).built()
                found = _caps_of_sums(cap, left_offset, right_offset)
            encoded.append(_clamped(row, found, finite))
    return [tf.reduce_sum(row, axis=0) for row in encoded] if summed else encoded


def _caps_of_sums(cap: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """`[chunk, inputs, outputs]`: the cap of the bucket `left + right`, or the last."""
    last = tf.repeat(cap[:, -1:], _BUCKETS, axis=1)
    table = tf.concat([cap, last], axis=1)
    first = tf.range(tf.shape(cap)[0])[:, tf.newaxis] * (2 * _BUCKETS)
    places = (first + left)[:, :, tf.newaxis] + right[:, tf.newaxis]
    return tf.gather(tf.reshape(table, [-1]), places)


def _sums_of_magnitudes(
    reached: tf.Tensor, below: tf.Tensor, block: Block
) -> tf.Tensor:
    """`[chunk, steps]`: as if all magnitudes of a step were that in its middle.

    Args:
        reached: How many coordinates are in a bucket or before it.
        below: `[chunk]`: the code of the first bucket, where the row's greatest is 0.
        block: Its steps.
    """
    middles = tf.constant(block.ends - (block.widths + 1) // 2, tf.int32)
    bucket = _counts_at_most(reached, middles[tf.newaxis])
    exponent = tf.cast(below[:, tf.newaxis] - bucket, tf.float32) / _BUCKETS_PER_OCTAVE
    magnitude = tf.where(bucket < _BUCKETS - 1, tf.pow(2.0, exponent), 0.0)
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
