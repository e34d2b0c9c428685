"""Weight averaging (`use_ema`) with private optimizers: post-processing, and saved."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

RNG = np.random.default_rng(0)
X = RNG.normal(size=[64, 3]).astype("float32")
Y = X @ np.ones([3, 1], "float32")


def fitted(epochs=4, **arguments):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPSGD(
        learning_rate=0.3, l2_norm_clip=1.0, noise_seed=7, **arguments
    )
    model.compile(optimizer, "mse")
    history = []

    def remember(batch, logs):
        history.append([w.numpy() for w in model.trainable_variables])

    lots = dp.data.poisson_batches(X, Y, batch_size=16, seed=3)
    model.fit(
        lots,
        epochs=epochs,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=remember)],
    )
    return model, history


@pytest.mark.parametrize("noise_multiplier", [0.0, 1.5])
def test_after_fit_the_weights_are_the_average_of_the_noised_ones(noise_multiplier):
    averaged, history = fitted(
        use_ema=True, ema_momentum=0.8, noise_multiplier=noise_multiplier
    )
    plain, _ = fitted(noise_multiplier=noise_multiplier)
    # The path is the same; what is averaged had its noise already.
    for last, weight in zip(history[-1], plain.trainable_variables, strict=True):
        np.testing.assert_allclose(last, weight, atol=1e-5)
    for index, weight in enumerate(averaged.trainable_variables):
        # Keras begins the average with the first updated weights, or with the initial.
        expected = history[0][index]
        for step in history[1:]:
            expected = 0.8 * expected + 0.2 * step[index]
        share = 0.8 ** (len(history) - 1)
        np.testing.assert_allclose(weight, expected, atol=5 * share + 1e-5)
        assert np.abs(weight - history[-1][index]).max() > 1e-4


def test_the_averaged_weights_are_what_is_saved_and_cost_nothing(tmp_path):
    averaged, _ = fitted(use_ema=True, ema_momentum=0.8, noise_multiplier=1.5)
    plain, _ = fitted(noise_multiplier=1.5)
    spent = dp.accounting.epsilon_of(averaged, 1e-5)
    assert spent == pytest.approx(dp.accounting.epsilon_of(plain, 1e-5))
    averaged.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.predict(X, verbose=0), averaged.predict(X, verbose=0)
    )
    assert dp.accounting.epsilon_of(loaded, 1e-5) == pytest.approx(spent)
