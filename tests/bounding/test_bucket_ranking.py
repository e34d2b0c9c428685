"""Buckets, counts and steps are integers: exactly what sorting and searching give."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dp_ext.bounding import bucket_ranking
from keras_dp_ext.bounding.codebook import step_ends
from keras_dp_ext.gradients.base import OuterRows
from tests.bounding.test_encode_rows import FACTORS, outer_rows

BUCKETS = bucket_ranking._BUCKETS


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 225, 256])
def test_the_binary_search_counts(length):
    rng = np.random.default_rng(length)
    ascending = np.sort(rng.integers(0, 50, [4, length]), axis=1).astype(np.int32)
    limits = rng.integers(-1, 52, [1, 13]).astype(np.int32)
    first = np.arange(4, dtype=np.int32)[:, None] * length
    counts = bucket_ranking._count_at_most(tf.constant(ascending), limits, first)
    expected = [[np.sum(row <= x) for x in limits[0]] for row in ascending]
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_rows_are_counted_alike_with_and_without_xla(jit, rows):
    rng = np.random.default_rng(rows)
    ascending = np.sort(rng.integers(0, 50, [rows, 225]), axis=1)
    limits = rng.integers(-1, 52, 13)
    count = tf.function(
        bucket_ranking._counts_at_most, jit_compile=jit, autograph=False
    )
    counts = count(*(tf.constant(value, tf.int32) for value in (ascending, limits)))
    expected = (ascending[:, None, :] <= limits[:, None]).sum(axis=2)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "size", [*range(1, 70), 255, 256, 257, 2047, 26_010, 795_010, 2**24 + 5, 2**31 - 2]
)
def test_the_step_of_every_position_is_the_one_that_a_search_finds(jit, size):
    """One too few would let a coordinate keep a greater entry than its rank allows."""
    ends = step_ends(size)
    positions = np.concatenate([ends - 1, ends, ends + 1, [0, 1, size]])
    if size < 10**6:
        positions = np.concatenate([positions, np.arange(size + 1)])
    else:
        rng = np.random.default_rng(0)
        positions = np.concatenate([positions, rng.integers(0, size, 10**6)])
    positions = positions[(positions >= 0) & (positions <= size)]
    search = tf.function(
        bucket_ranking.StepSearch(ends), jit_compile=jit, autograph=False
    )
    found = search(tf.constant(positions, tf.int32))
    # Position 0 is before all: it has the first step.
    expected = np.searchsorted(ends, np.maximum(positions, 1), side="left")
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 2**31 - 2), min_size=1, max_size=40, unique=True))
def test_steps_of_any_widths_are_found(ends):
    ends = np.sort(np.array(ends))
    if ends[-1] >= 2**24:
        # Leading bits of float32 cannot tell these neighbours apart.
        ends = np.unique(ends // 256 * 256 + 1)
    positions = np.unique(np.concatenate([ends - 1, ends, ends[:-1] + 1, [1]]))
    positions = positions[positions <= ends[-1]]
    found = bucket_ranking.StepSearch(ends)(tf.constant(positions, tf.int32))
    expected = np.searchsorted(ends, np.maximum(positions, 1), side="left")
    np.testing.assert_array_equal(found, expected)


def test_codes_are_logarithms_and_never_fall():
    bits = np.sort(np.random.default_rng(0).integers(2**23, 255 << 23, 2**18))
    codes = bucket_ranking._code(tf.constant(bits, tf.int32)).numpy()
    assert np.all(np.diff(codes) >= 0)
    values = bits.astype(np.int32).view(np.float32).astype(np.float64)
    exact = bucket_ranking._BUCKETS_PER_OCTAVE * (np.log2(values) + 127)
    assert np.abs(codes - exact).max() < 0.85
    around = np.arange(126 << 23, 129 << 23, dtype=np.int32)
    assert np.all(np.diff(bucket_ranking._code(tf.constant(around))) >= 0)


def offsets_and_counts(products, others=0.0):
    """Beside a matrix whose greatest magnitude is `others` in every row."""
    bits = tf.fill([products.left.shape[0]], int(np.float32(others).view(np.int32)))
    _, offsets, histograms = bucket_ranking._offsets([[bits]], [[products]])
    sums = bucket_ranking._counts_of_sums(histograms[0][0])
    return offsets[0][0], bucket_ranking._rounded_counts(sums).numpy()


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(FACTORS)), min_size=1, max_size=4),
    others=st.sampled_from([0.0, 1e-30, 1.0, 1e3, 1e30]),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_counted_without_building_them(kinds, others, seed):
    """The counts are those of the very buckets by which coordinates are clamped."""
    products = outer_rows(np.random.default_rng(seed), kinds)
    offsets, counts = offsets_and_counts(products, others)
    left, right = (offset.numpy() for offset in offsets)
    buckets = np.minimum(left[:, :, None] + right[:, None], BUCKETS - 1)
    assert buckets.min() >= 0
    expected = [np.bincount(row.ravel(), minlength=BUCKETS) for row in buckets]
    np.testing.assert_array_equal(counts, expected)
    caps = tf.constant(np.random.default_rng(0).random([len(kinds), BUCKETS]))
    found = bucket_ranking._caps_of_sums(caps, *offsets)
    np.testing.assert_array_equal(found, tf.gather(caps, buckets, batch_dims=1))


def test_two_million_products_are_counted_exactly():
    """Where most fall into one bucket, as many as there can be."""
    rng = np.random.default_rng(0)
    ones = np.ones([2, 1448], np.float32)
    ones[1] += (rng.random(1448) < 0.01) * rng.random(1448)
    offsets, counts = offsets_and_counts(
        OuterRows(tf.constant(ones), tf.constant(ones[::-1].copy())), 2.4
    )
    left, right = (offset.numpy() for offset in offsets)
    expected = [
        np.bincount((a[:, None] + b).ravel(), minlength=BUCKETS)
        for a, b in zip(left, right, strict=True)
    ]
    np.testing.assert_array_equal(counts, expected)
