"""Ranks of coordinates by buckets of magnitudes: counted, not sorted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.bounding.codebook import Block
from keras_dp_ext.gradients.base import OuterRows
from keras_dp_ext.gradients.rules.device import is_compiled

# Buckets of magnitudes: 32 for each power of two, over 16 powers of two below the
# greatest magnitude of the row.
_BUCKETS_PER_OCTAVE = 32
_BUCKETS = 512
_CODE_OF_ONE = 127 * _BUCKETS_PER_OCTAVE
_MAGNITUDE_BITS = 0x7FFFFFFF

# From a function of tensors to one that computes the same.
Fuse = Callable[[Callable[..., Any]], Callable[..., Any]]


class RankByBuckets:
    """Sums of magnitudes by step (approximate), and rows clamped to the caps.

    Only what passes over all coordinates, and what leads to it, is fused: XLA takes a
    fiftieth of a second to compile each of its kernels.

    Args:
        fuse: Is given what passes over all coordinates, and returns the same, compiled.
        summed: Whether sums over the rows are returned.
    """

    def __init__(self, fuse: Fuse, summed: bool):
        self._fuse = fuse
        self._summed = summed

    def __call__(
        self,
        groups: Sequence[Sequence[tf.Tensor | OuterRows]],
        blocks: Sequence[Block],
    ) -> Any:
        """Sums for each block, and from its vectors' numbers to encoded rows.

        Args:
            groups: For each block, matrices and rows that are products.
            blocks: What they are ranked by.
        """
        matrices = [[row for row in group if tf.is_tensor(row)] for group in groups]
        products = [[row for row in group if not tf.is_tensor(row)] for group in groups]
        largest = [
            [tf.reduce_max(magnitude_bits(row), axis=1) for row in group]
            for group in matrices
        ]
        if any(products):
            tops, offsets, histograms = self._fuse(_offsets)(largest, products)
        else:
            tops = [_top([_code(bits) for bits in group]) for group in largest]
            offsets = histograms = [[] for _ in groups]
        pairs = [list(map(_counts_of_sums, group)) for group in histograms]
        count = functools.partial(
            _reached, searches=[StepSearch(block.ends) for block in blocks]
        )
        reached, steps = self._fuse(count)(matrices, tops, pairs)
        below = [top - _top(tops) for top in tops] if len(tops) > 1 else [None]
        sums = [
            _sums_of_magnitudes(*one)
            for one in zip(reached, below, blocks, strict=True)
        ]

        def clamp_to(chosen: tf.Tensor, finite: tf.Tensor) -> list[tf.Tensor]:
            caps = [
                _entries(block.table, chosen, step)
                for block, step in zip(blocks, steps, strict=True)
            ]
            given = []
            for group, of_products in zip(groups, map(iter, offsets), strict=True):
                given.append(
                    [
                        row if tf.is_tensor(row) else (*row, *next(of_products))
                        for row in group
                    ]
                )
            clamp = functools.partial(_clamped_by_buckets, summed=self._summed)
            return self._fuse(clamp)(given, tops, caps, finite)

        return sums, clamp_to


def magnitude_bits(row: tf.Tensor) -> tf.Tensor:
    """The magnitudes as integers, which order in the same way.

    In integers only: what takes a denormal for zero would rank it elsewhere.
    """
    return tf.bitwise.bitwise_and(tf.bitcast(row, tf.int32), _MAGNITUDE_BITS)


def clamped(row: tf.Tensor, cap: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
    """Each coordinate within its cap; 0 in rows that are not finite."""
    clamped = tf.maximum(tf.minimum(row, cap), -cap)
    return tf.where(tf.reshape(finite, [-1, *[1] * (row.shape.rank - 1)]), clamped, 0.0)


# Buckets -------------------------------------------------------------------------


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
    # 2048 of these to each power of two: 64 to a bucket.
    half = 1024 // _BUCKETS_PER_OCTAVE
    return tf.bitwise.right_shift(position + half, half.bit_length())


def _top(codes: Sequence[tf.Tensor]) -> tf.Tensor:
    return functools.reduce(tf.maximum, codes)


def _cells(row: tf.Tensor, top: tf.Tensor) -> tf.Tensor:
    """Where each coordinate's bucket is in the flattened buckets of all rows.

    Bucket 0 holds the greatest magnitudes, the last all tiny ones.
    """
    first_bucket = tf.range(tf.shape(top)[0])[:, tf.newaxis] * _BUCKETS
    code = _code(magnitude_bits(row))
    return first_bucket + tf.minimum(top[:, tf.newaxis] - code, _BUCKETS - 1)


def _histogram(cells: tf.Tensor, rows: tf.Tensor, length: int) -> tf.Tensor:
    """`[rows, length]`: how often each place of the flattened result is named."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(cells), cells, rows * length)
    return tf.reshape(counts, [rows, length])


# Rows that are products ------------------------------------------------------------


def _offsets(largest: Any, products: Any) -> Any:
    """Buckets of the coordinates of rows that are products, from their factors.

    A coordinate's bucket is the sum of two offsets, or the last one if that is less.
    Both passes add the same integers, so they agree on every coordinate.

    Args:
        largest: For each group, the bits of the greatest magnitudes of each matrix.
        products: For each group, `OuterRows`.

    Returns:
        For each group `[chunk]`, the greatest code; for each product the offsets of its
        factors; and `float64[chunk, 2 * buckets]`, how often each one occurs.
    """
    tops, offsets, histograms = [], [], []
    for bits, group in zip(largest, products, strict=True):
        codes = [[_code(magnitude_bits(part)) for part in rows] for rows in group]
        highest = [[tf.reduce_max(c, axis=1) for c in pair] for pair in codes]
        top = _top(
            [_code(one) for one in bits]
            + [left + right - _CODE_OF_ONE for left, right in highest]
        )
        tops.append(top)
        pairs = []
        for (left, right), (_, end) in zip(codes, highest, strict=True):
            left = (top - end + _CODE_OF_ONE)[:, tf.newaxis] - left
            right = end[:, tf.newaxis] - right
            pairs.append([tf.minimum(one, _BUCKETS - 1) for one in (left, right)])
        offsets.append(pairs)
        histograms.append([list(map(_padded_histogram, pair)) for pair in pairs])
    return tops, offsets, histograms


def _padded_histogram(numbers: tf.Tensor) -> tf.Tensor:
    """`[chunk, 2 * buckets]`: how often each number is in each row."""
    rows = tf.shape(numbers)[0]
    cells = numbers + tf.range(rows)[:, tf.newaxis] * (2 * _BUCKETS)
    return tf.cast(_histogram(cells, rows, 2 * _BUCKETS), tf.float64)


def _counts_of_sums(histograms: Sequence[tf.Tensor]) -> tf.Tensor:
    """`[chunk, 2 * buckets]`: how many pairs have each sum, but for rounding.

    The counts of sums are a convolution of the counts. By Fourier transforms in
    float64, whose error is below 1e-4 for 2^31 coordinates: rounding makes it exact.
    """
    length = [2 * _BUCKETS]
    left, right = (tf.signal.rfft(one, fft_length=length) for one in histograms)
    return tf.signal.irfft(left * right, fft_length=length)


def _rounded_counts(pairs: tf.Tensor) -> tf.Tensor:
    """`[chunk, buckets]`: what is beyond the last bucket is in it."""
    pairs = tf.cast(tf.round(pairs), tf.int32)
    last = tf.reduce_sum(pairs[:, _BUCKETS - 1 :], axis=1, keepdims=True)
    return tf.concat([pairs[:, : _BUCKETS - 1], last], axis=1)


# The two passes ----------------------------------------------------------------------


def _reached(groups: Any, tops: Any, pairs: Any, searches: Any) -> Any:
    """How many coordinates are in a bucket or in one of greater magnitudes.

    Returns:
        For each group `[chunk, buckets]`, and the step of the bucket's last position.
    """
    found, steps = [], []
    for group, top, sums, search in zip(groups, tops, pairs, searches, strict=True):
        rows = tf.shape(top)[0]
        counts = [
            _histogram(tf.reshape(_cells(row, top), [-1]), rows, _BUCKETS)
            for row in group
        ]
        counts += map(_rounded_counts, sums)
        reached = tf.cumsum(tf.add_n(counts), axis=1)
        found.append(reached)
        steps.append(search(reached))
    return found, steps


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
            encoded.append(clamped(row, found, finite))
    return [tf.reduce_sum(row, axis=0) for row in encoded] if summed else encoded


def _caps_of_sums(cap: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """`[chunk, inputs, outputs]`: the cap of the bucket `left + right`, or the last."""
    last = tf.repeat(cap[:, -1:], _BUCKETS, axis=1)
    table = tf.concat([cap, last], axis=1)
    first = tf.range(tf.shape(cap)[0])[:, tf.newaxis] * (2 * _BUCKETS)
    places = (first + left)[:, :, tf.newaxis] + right[:, tf.newaxis]
    return tf.gather(tf.reshape(table, [-1]), places)


# Steps and positions -------------------------------------------------------------------


def _sums_of_magnitudes(
    reached: tf.Tensor, below: tf.Tensor | None, block: Block
) -> tf.Tensor:
    """`[chunk, steps]`: as if all magnitudes of a step were that in its middle.

    Args:
        reached: How many coordinates are in a bucket or before it.
        below: `[chunk]`: the code of the first bucket, where the row's greatest is 0.
            `None` where that is all.
        block: Its steps.
    """
    middles = tf.constant(block.ends - (block.widths + 1) // 2, tf.int32)
    bucket = _counts_at_most(reached, middles)
    magnitude = tf.gather(tf.constant(_magnitudes()), bucket)
    if below is not None:
        exponent = tf.cast(below, tf.float32) / _BUCKETS_PER_OCTAVE
        magnitude *= tf.pow(2.0, exponent)[:, tf.newaxis]
    return magnitude * tf.constant(block.widths, tf.float32)


@functools.cache
def _magnitudes() -> np.ndarray:
    """Of each bucket, relative to the first; 0 for the last, which has all tiny ones."""
    magnitudes = np.exp2(-np.arange(_BUCKETS + 1) / _BUCKETS_PER_OCTAVE)
    magnitudes[_BUCKETS - 1 :] = 0.0
    return magnitudes.astype(np.float32)


def _entries(table: np.ndarray, chosen: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """`table[chosen[b], step[b, i]]`: ten times faster than `batch_dims`."""
    places = chosen[:, tf.newaxis] * table.shape[1] + step
    return tf.gather(tf.constant(table.ravel()), places)


class StepSearch:
    """Which step a position belongs to: `ends` that are less than it, counted.

    Without a search: positions of the same leading bits are a cell, with at most one end
    of a step in it. How many ends come before a cell is known, so one comparison
    remains.

    Args:
        ends: Of steps, ascending, of 1-based positions.
    """

    def __init__(self, ends: np.ndarray):
        self._first, self._ends, self._shift = _cells_of_steps(tuple(ends.tolist()))

    def __call__(self, position: tf.Tensor) -> tf.Tensor:
        """`int32[...]`: how many ends are less than each 1-based position.

        Args:
            position: At most the last end.
        """
        places = tf.maximum(position, 1)
        bits = tf.bitcast(tf.cast(places, tf.float32), tf.int32)
        cell = tf.bitwise.right_shift(bits, self._shift) - (_ONE >> self._shift)
        step = tf.gather(tf.constant(self._first), cell)
        is_beyond = tf.gather(tf.constant(self._ends), step) < places
        return step + tf.cast(is_beyond, tf.int32)


_ONE = int(np.float32(1).view(np.int32))


@functools.lru_cache(maxsize=64)
def _cells_of_steps(ends: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, int]:
    """For each cell how many ends lie before it; the ends; how cells are numbered."""
    last = np.array(ends, np.int32)
    # The first position that is beyond each end. None is beyond the last.
    bits = (last[:-1] + 1).astype(np.float32).view(np.int32)
    of_last = int(last[-1:].astype(np.float32).view(np.int32)[0])
    # As few leading bits as tell all ends apart.
    shift = next(
        shift for shift in range(22, -1, -1) if np.all(np.diff(bits >> shift) > 0)
    )
    cells = np.arange(_ONE >> shift, (of_last >> shift) + 1)
    first = np.searchsorted(bits >> shift, cells, side="left").astype(np.int32)
    return first, last, shift


def _counts_at_most(ascending: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """`[rows, limits]`: how many entries of each ascending row are at most a limit."""
    rows = tf.shape(ascending)[0]
    if is_compiled():
        first = tf.range(rows)[:, tf.newaxis] * ascending.shape[-1]
        return _count_at_most(ascending, limits, first)
    limits = tf.tile(limits[tf.newaxis], [rows, 1])
    return tf.searchsorted(ascending, limits, side="right")


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
