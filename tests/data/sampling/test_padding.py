"""Padding contributes nothing to an update, to the last bit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.data import poisson_batches
from tests.numpy_batches import numpy_batches


def weights_after(batches: tf.data.Dataset, optimizer) -> list[np.ndarray]:
    model = keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(2, kernel_initializer="ones")]
    )
    model.compile(optimizer, loss="mse")
    model.fit(batches, verbose=0)
    return [weight.numpy() for weight in model.trainable_weights]


def silent(**arguments) -> keras.optimizers.Optimizer:
    """No noise, and whole numbers that floats add without rounding."""
    return dp.optimizers.DPSGD(
        learning_rate=0.25,
        noise_multiplier=0.0,
        expected_batch_size=16,
        **arguments,
    )


def whole_numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, size=[200, 4]).astype(np.float32)
    return x, rng.integers(-3, 4, size=[200, 2]).astype(np.float32)


def test_updates_are_bit_equal_with_and_without_padding():
    x, y = whole_numbers()
    lot = poisson_batches(x, y, batch_size=16, steps_per_epoch=1, seed=0)
    (padded_x, padded_y, weight), *_ = numpy_batches(lot)
    real = weight > 0
    assert 0 < real.sum() < len(real)
    bare = tf.data.Dataset.from_tensors((padded_x[real], padded_y[real], weight[real]))
    with_padding = weights_after(
        poisson_batches(x, y, batch_size=16, steps_per_epoch=1, seed=0),
        silent(l2_norm_clip=1e6),
    )
    without = weights_after(bare, silent(l2_norm_clip=1e6))
    for a, b in zip(with_padding, without, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("clip", [0.1, 1e6])
def test_what_stands_in_padding_rows_does_not_matter(clip):
    x, y = whole_numbers()
    lot = poisson_batches(x, y, batch_size=16, steps_per_epoch=1, seed=0)
    (padded_x, padded_y, weight), *_ = numpy_batches(lot)
    garbage = np.where(weight[:, None] > 0, padded_x, 1e4).astype(np.float32)
    results = [
        weights_after(
            tf.data.Dataset.from_tensors((rows, padded_y, weight)),
            silent(l2_norm_clip=clip),
        )
        for rows in (padded_x, garbage)
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
