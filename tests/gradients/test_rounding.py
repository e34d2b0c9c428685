"""Rounding never makes a norm too small: what cancels is added back."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.contributions import Lookups, OuterProducts


def cancelling(rng, width, near):
    """Two vectors that are equal but for a part of size `near`."""
    common = 1 + np.abs(rng.normal(size=(1, width)))
    return (common + near * rng.normal(size=(2, width))).astype(np.float32)


@pytest.mark.parametrize("near", [1e-3, 3e-3, 1e-2])
def test_ghost_norms_of_outer_products_that_cancel_are_not_too_small(near, rng):
    left = cancelling(rng, 4096, near)
    right = cancelling(rng, 1024, 0.0) * np.array([[1], [-1]], np.float32)
    exact = np.linalg.norm(left.T.astype(np.float64) @ right.astype(np.float64))
    products = OuterProducts(left[np.newaxis], right[np.newaxis], (4096, 1024))
    assert products._prefers_ghost()
    assert products.norm_squared().numpy()[0] >= exact**2


@pytest.mark.parametrize("near", [1e-3, 1e-2])
def test_ghost_norms_of_repeated_tokens_that_cancel_are_not_too_small(near, rng):
    gradients = cancelling(rng, 1024, near) * np.array([[1], [-1]], np.float32)
    exact = np.linalg.norm(gradients.astype(np.float64).sum(axis=0))
    lookups = Lookups(tf.constant([[3, 3]]), gradients[np.newaxis], (5, 1024))
    assert lookups.norm_squared().numpy()[0] >= exact**2


def test_an_innocent_row_loses_next_to_nothing(rng):
    left = rng.normal(size=(1, 16, 512)).astype(np.float32)
    right = rng.normal(size=(1, 16, 512)).astype(np.float32)
    exact = np.linalg.norm(left[0].T.astype(np.float64) @ right[0])
    products = OuterProducts(left, right, (512, 512))
    assert products.norm_squared().numpy()[0] <= exact**2 * 1.002


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_token_beyond_the_table_is_nobody_elses(jit_compile):
    """XLA does not check indices; 13 in a table of 10 was the next row's token 3."""

    @tf.function(jit_compile=jit_compile)
    def rows(indices):
        return Lookups(indices, tf.ones([2, 1, 4]), (10, 4)).rows()

    result = rows(tf.constant([[13], [2]])).numpy()
    expected = np.zeros((2, 10, 4))
    expected[1, 2] = 1
    np.testing.assert_array_equal(result, expected)
