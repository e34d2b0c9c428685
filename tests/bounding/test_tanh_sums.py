"""Tangents of products as matrix products are those of the row map."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.bounding.tanh_rows import tanh_rows
from keras_dp_ext.bounding.tanh_sums import _RANGES, tanh_sums
from keras_dp_ext.gradients.base import OuterRows, sum_of_mapped

ROWS = 12


def given(reach, seed=0):
    """A matrix and two products, of which the largest magnitudes are `reach`."""
    rng = np.random.default_rng(seed)

    def unit(n):
        values = rng.standard_normal([ROWS, n]) * (rng.random([ROWS, n]) < 0.7)
        values[:, 0] = rng.choice([-1.0, 1.0], ROWS)
        return np.clip(values, -1, 1)

    scales = np.exp(rng.normal(0, 5, [2, ROWS, 1]))
    products = [
        OuterRows(
            tf.constant(unit(17) * scale, tf.float32),
            tf.constant(unit(13) / scale * np.reshape(reach, [-1, 1]), tf.float32),
        )
        for scale in scales
    ]
    return [tf.constant(rng.standard_normal([ROWS, 9]), tf.float32), *products]


def both(rows, output_range=1.0, active_range=1.0, slope=1.0, clip=1.0):
    row_map = tanh_rows(output_range, active_range, slope, clip)
    sums = tanh_sums(row_map, output_range, slope / active_range, clip)
    built = [one.built() if isinstance(one, OuterRows) else one for one in rows]
    return sums(rows), sum_of_mapped(row_map, built)


@pytest.mark.parametrize("clip", [None, 1e-3, 1.0])
@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("reach", [1e-30, 1e-3, *_RANGES, 1.01, 30.0, "mixed"], ids=str)
def test_sums_are_those_of_the_row_map(reach, factor, clip):
    """In each range, at its end, beyond the last one, and all of these in one batch."""
    if reach == "mixed":
        reach = np.resize([1e-3, *_RANGES, 1.01, 30.0, 0.0], ROWS)
    found, expected = both(given(reach), 0.7, 1.0, factor, clip)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=1e-5, atol=1e-6 * np.abs(other).max()
        )


@pytest.mark.parametrize("reach", [1e-3, 0.1, 0.49, 0.99, 5.0])
def test_no_row_adds_more_than_the_clip(reach):
    """Each row by itself, in float64."""
    rows = given(reach)
    for number in range(ROWS):
        alone = [
            OuterRows(*(part[number : number + 1] for part in one))
            if isinstance(one, OuterRows)
            else 0.0 * one[number : number + 1]
            for one in rows
        ]
        found, _ = both(alone, clip=1e-4)
        norm = np.sqrt(sum(np.square(np.float64(one)).sum() for one in found))
        assert norm <= 1e-4 * (1 + 1e-6)


def test_huge_and_zero_rows_leave_the_others_as_they_are():
    rows = given(0.3)
    alone, _ = both([one_row(one, 0) for one in rows])
    spoiled = []
    for one in rows:
        parts = (
            [part.numpy() for part in one]
            if isinstance(one, OuterRows)
            else [one.numpy()]
        )
        for part in parts:
            part[1] = 1e17
            part[2:] = 0.0
        tensors = list(map(tf.constant, parts))
        spoiled.append(
            OuterRows(*tensors) if isinstance(one, OuterRows) else tensors[0]
        )
    together, _ = both(spoiled)
    huge, _ = both([one_row(one, 1) for one in spoiled])
    for one, other, total in zip(alone, huge, together, strict=True):
        np.testing.assert_allclose(total, one + other, rtol=1e-5, atol=1e-6)


def one_row(rows, number):
    if isinstance(rows, OuterRows):
        return OuterRows(*(part[number : number + 1] for part in rows))
    return rows[number : number + 1]
