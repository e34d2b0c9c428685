"""The filter without privacy: an optimizer against exploding gradients."""

import keras
import numpy as np
import pytest

from keras_dp_ext.optimizers.private_optimizer import PrivateOptimizer
from keras_dp_ext.optimizers.tanh_filtered_sgd import TanhFilteredSGD


def test_update_is_plain_sgd_on_filtered_gradients():
    optimizer = TanhFilteredSGD(0.5, output_range=2.0, active_range=4.0, slope=0.5)
    variable = keras.Variable(np.zeros(5, "float32"))
    gradient = np.array([0.0, -1.0, 3.0, 1e4, -np.inf], "float32")
    optimizer.build([variable])
    optimizer.apply([keras.ops.convert_to_tensor(gradient)])
    x = np.clip(gradient / 4.0, -50, 50)
    expected = -0.5 * 2.0 * (1 - np.exp(-x)) / (1 + np.exp(-x))  # Eq. 4.
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-7)


def _train_long_memory(optimizer):
    """Recall the first of 60 inputs, with a recurrent matrix that amplifies."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((128, 60, 1)).astype("float32")
    y = x[:, 0]
    model = keras.Sequential(
        [
            keras.Input([60, 1]),
            keras.layers.SimpleRNN(
                16,
                activation="linear",
                recurrent_initializer=keras.initializers.Orthogonal(gain=1.1),
            ),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse")
    history = model.fit(x, y, batch_size=32, epochs=15, verbose=0).history["loss"]
    weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
    return history, weights


def test_an_exploding_rnn_stays_finite_where_plain_sgd_diverges():
    history, weights = _train_long_memory(keras.optimizers.SGD(0.01))
    assert not np.all(np.isfinite(weights))
    history, weights = _train_long_memory(TanhFilteredSGD(0.01))
    assert np.all(np.isfinite(weights))
    assert history[-1] < 0.01 * history[0]


def test_it_is_not_a_private_optimizer_and_says_so():
    assert not issubclass(TanhFilteredSGD, PrivateOptimizer)
    assert "NOT private" in TanhFilteredSGD.__doc__


def test_it_is_saved_with_the_model(tmp_path):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(TanhFilteredSGD(0.1, active_range=3.0), "mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(loaded, TanhFilteredSGD)
    assert loaded.get_config() == model.optimizer.get_config()
    with pytest.raises(ValueError, match="Argument `active_range`"):
        TanhFilteredSGD(active_range=0)
