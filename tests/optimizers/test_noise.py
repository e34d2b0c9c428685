"""The noise that is really added is the noise that is claimed."""

import keras
import numpy as np
import pytest
import scipy.stats

import keras_dp_ext as dp

CLIP, MULTIPLIER, BATCH, STEPS = 0.5, 1.3, 8, 400


def noise_of_training(**arguments):
    """Changes of the weights over many steps whose gradients are all zero."""
    x = np.zeros((BATCH * STEPS, 4), "float32")
    y = np.zeros((BATCH * STEPS, 1), "float32")
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(8, use_bias=False)])
    model.add(keras.layers.Lambda(lambda value: 0.0 * value))
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            l2_norm_clip=CLIP,
            noise_multiplier=MULTIPLIER,
            **arguments,
        ),
        loss="mse",
    )
    history = [model.get_weights()[0]]
    model.fit(
        x,
        y,
        batch_size=BATCH,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: history.append(
                    model.get_weights()[0]
                )
            )
        ],
    )
    return -np.diff(np.reshape(history, [STEPS + 1, -1]), axis=0)


@pytest.fixture(scope="module")
def noise():
    return noise_of_training(noise_seed=3)


def test_noise_is_gaussian_with_the_claimed_deviation(noise):
    deviation = MULTIPLIER * CLIP / BATCH
    flat = noise.ravel() / deviation
    assert abs(flat.mean()) < 4 / np.sqrt(flat.size)
    assert abs(flat.var() - 1) < 4 * np.sqrt(2 / flat.size)
    assert abs(scipy.stats.kurtosis(flat)) < 4 * np.sqrt(24 / flat.size)
    assert scipy.stats.kstest(flat, "norm").pvalue > 1e-3


def test_noise_is_independent_across_coordinates_and_steps(noise):
    def largest(correlation):
        return np.max(np.abs(correlation - np.diag(np.diag(correlation))))

    count = noise.shape[1]
    assert largest(np.corrcoef(noise.T)) < 5 / np.sqrt(STEPS)
    assert largest(np.corrcoef(noise)) < 6 / np.sqrt(count)
    shifted = np.corrcoef(noise[1:].ravel(), noise[:-1].ravel())[0, 1]
    assert abs(shifted) < 4 / np.sqrt(noise.size)


def test_two_runs_differ_whatever_the_global_seed():
    keras.utils.set_random_seed(0)
    first = noise_of_training()
    keras.utils.set_random_seed(0)
    second = noise_of_training()
    assert not np.isclose(first, second).any(axis=None) or (
        np.isclose(first, second).mean() < 0.01
    )


def test_an_explicit_seed_reproduces_the_noise(noise):
    np.testing.assert_allclose(noise_of_training(noise_seed=3), noise, atol=1e-6)
