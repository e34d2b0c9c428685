"""One example whose gradient is not a number counts as zero, in every form."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.layers import CASES
from keras_dp_ext.gradients import per_example_gradients, row_tensors

# One for each form in which gradients are held.
FORMS = [
    "Conv1D",  # a rearranged weight
    "Conv2D",  # kernels in a loop
    "Conv2D, groups",
    "Dense",  # a single product
    "Dense on sequences",  # products, built or by Gram matrices
    "LayerNormalization",
    "shared layer",
    "Dense with LoRA, on sequences",  # weights that are computed from variables
]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("name", FORMS)
def test_rows_that_are_not_finite_count_as_zero(name, value):
    keras.utils.set_random_seed(3)
    model = CASES[name].model()
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def run(x):
        outputs = model(x)
        losses = tf.reduce_sum(
            tf.square(outputs), axis=list(range(1, outputs.shape.rank))
        )
        gradients = per_example_gradients(losses, variables)
        in_scale = gradients.copy()
        scaled = in_scale.norm_squared([tf.fill(v.shape, 2.0) for v in variables])
        return (
            gradients.norm_squared(),
            # Rows may be infinitely long instead: a clip leaves nothing of them.
            tf.where(tf.math.is_inf(scaled), 0.0, 4.0 * scaled),
            gradients.weighted_sum(tf.ones_like(losses)),
            in_scale.weighted_sum(tf.cast(tf.math.is_finite(scaled), tf.float32)),
            gradients.copy().sum_of(lambda rows: rows),
            gradients.copy().sum_of(lambda rows: rows, bytes_limit=1),
        )

    x = CASES[name].inputs(4)
    poisoned = x.copy()
    poisoned[2].reshape(-1)[1] = value
    norms, scaled, *sums = run(poisoned)
    assert np.isfinite(norms).all()
    np.testing.assert_allclose(norms, scaled, rtol=1e-4)
    if name in ("LayerNormalization", "shared layer") and value == 1e30:
        return  # Normalised away, or saturated: the gradient is finite, and counts.
    assert norms[2] == 0
    _, _, *expected = run(np.delete(x, 2, axis=0))
    for computed, clean in zip(sums, expected, strict=True):
        for a, b in zip(computed, clean, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_one_row_that_is_not_finite_in_any_of_several_products_is_found():
    ones, bad = np.ones([3, 2], np.float32), np.ones([3, 2], np.float32)
    bad[1, 0], huge = np.nan, 3e38 * np.ones([3, 2], np.float32)
    one_huge = np.where([[False], [False], [True]], huge, ones)
    pairs = [(ones, ones), (bad, ones), (one_huge, one_huge)]
    found = row_tensors.have_all_finite_products(
        [tuple(map(tf.constant, pair)) for pair in pairs]
    )
    assert found.numpy().tolist() == [True, False, False]


def test_a_coefficient_of_zero_leaves_a_row_out_whatever_is_in_it():
    value = tf.constant([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]])
    scaled = row_tensors.scale_rows(tf.constant([2.0, 0.0, 1.0]), value)
    np.testing.assert_array_equal(scaled, [[2, 4], [0, 0], [3, 4]])


def test_what_was_reshaped_there_and_back_is_no_op():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 6])
        there = row_tensors.reshaped(x, [-1, 1, 4, 6])
        assert row_tensors.reshaped(there, [-1, 4, 6]) is x
        assert row_tensors.reshaped(there, [-1, 24]).op.inputs[0] is x
        assert row_tensors.reshaped(x, [-1, 6, 4]) is not x
    eager = tf.zeros([2, 3])
    assert row_tensors.reshaped(eager, [2, 3]) is eager
    assert row_tensors.reshaped(eager, [3, 2]).shape == [3, 2]
