"""Convolutions are computed in chunks of rows; the result does not depend on them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import chunks, per_example_gradients
from keras_dp_ext.gradients.rules.convolution import filter_gradients, rules

LAYERS = {
    "strides that divide the kernel": {"kernel_size": 4, "strides": 2},
    "the same, padded": {"kernel_size": 4, "strides": 2, "padding": "same"},
    "strides that do not": {"kernel_size": 3, "strides": 2, "padding": "same"},
    "no strides": {"kernel_size": 3},
    "dilated": {"kernel_size": 3, "dilation_rate": 2},
    "pixels": {"kernel_size": 1},
    "every other pixel": {"kernel_size": 1, "strides": 2},
    "one row": {"kernel_size": (1, 4), "strides": (1, 2)},
}


def norms_and_sum(layer, x, coefficients):
    """By the engine, for a batch whose size is not known when it is traced."""

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]])])
    def run(images):
        outputs = layer(images)
        losses = tf.reduce_mean(tf.sin(outputs), axis=[1, 2, 3])
        gradients = per_example_gradients(losses, layer.trainable_variables)
        return gradients.norm_squared(), gradients.weighted_sum(coefficients)

    return run(x)


@pytest.mark.parametrize("by_products", [True, False])
@pytest.mark.parametrize("kept_elements", [0, 40_000])
# Patches of few channels are cut in another way.
@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_chunks_give_what_a_tape_gives(
    arguments, channels, kept_elements, by_products, monkeypatch, rng
):
    monkeypatch.setattr(chunks, "_chunk_bytes", 4 * 2**10)
    monkeypatch.setattr(filter_gradients, "kept_elements", lambda: kept_elements)
    monkeypatch.setattr(rules, "has_fast_matrix_products", lambda: by_products)
    x = rng.normal(size=(7, 11, 13, channels)).astype(np.float32)
    check_against_tape(keras.layers.Conv2D(5, **arguments), x, rng)


@pytest.mark.parametrize("by_products", [True, False])
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)
def test_chunks_of_depthwise_convolutions_give_what_a_tape_gives(
    arguments, multiplier, by_products, monkeypatch, rng
):
    if arguments.get("strides") == (1, 2):
        pytest.skip("TensorFlow wants equal strides here.")
    monkeypatch.setattr(chunks, "_chunk_bytes", 16 * 2**10)
    monkeypatch.setattr(rules, "has_fast_matrix_products", lambda: by_products)
    x = rng.normal(size=(7, 11, 13, 4)).astype(np.float32)
    layer = keras.layers.DepthwiseConv2D(depth_multiplier=multiplier, **arguments)
    check_against_tape(layer, x, rng)


def check_against_tape(layer, x, rng):
    coefficients = rng.uniform(size=7).astype(np.float32)
    layer.build(x.shape)
    norms, sums = norms_and_sum(layer, x, coefficients)
    with tf.GradientTape() as tape:
        losses = tf.reduce_mean(tf.sin(layer(x)), axis=[1, 2, 3])
    rows = tape.jacobian(losses, layer.trainable_variables)
    expected = sum(
        np.square(row.numpy()).reshape(7, -1).sum(axis=1, dtype=np.float64)
        for row in rows
    )
    np.testing.assert_allclose(norms, expected, rtol=1e-3)
    for total, row in zip(sums, rows, strict=True):
        np.testing.assert_allclose(
            total, np.tensordot(coefficients, row, 1), atol=1e-6, rtol=1e-4
        )


@pytest.mark.parametrize("batch", [None, 6])
def test_kept_rows_may_have_norms_that_need_no_rows(batch, rng):
    # Few positions and many channels: Gram matrices are cheaper.
    x = rng.normal(size=(6, 4, 4, 40)).astype(np.float32)
    x[3, 0, 0, 0] = np.nan
    layer = keras.layers.Conv2D(40, 3, use_bias=False)
    layer.build(x.shape)

    @tf.function(input_signature=[tf.TensorSpec([batch, 4, 4, 40])])
    def run(images):
        losses = tf.reduce_mean(tf.sin(layer(images)), axis=[1, 2, 3])
        gradients = per_example_gradients(losses, layer.trainable_variables)
        return gradients.norm_squared(), gradients.weighted_sum(tf.ones([6]))

    norms, (total,) = run(x)
    assert norms[3] == 0
    assert (np.delete(norms, 3) > 0).all()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(
            tf.reduce_mean(tf.sin(layer(np.delete(x, 3, axis=0))), axis=[1, 2, 3])
        )
    np.testing.assert_allclose(total, tape.gradient(loss, layer.kernel), atol=1e-6)
