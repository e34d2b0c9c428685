"""`chunk_bytes` of an optimizer: less memory at a time, and the same training."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.gradients import chunk_bytes
from keras_dp_ext.gradients.rules.convolution.filter_gradients import kept_elements


def trained(name, rows=24, **arguments):
    """Weights after two steps without noise, of batches of unknown size."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input([9, 9, 2]),
            keras.layers.Conv2D(6, 3, activation="relu"),
            keras.layers.Conv2D(4, 1),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    generator = np.random.default_rng(5)
    x = generator.normal(size=[rows, 9, 9, 2]).astype(np.float32)
    y = generator.integers(0, 3, rows)
    model.compile(
        getattr(dp.optimizers, name)(learning_rate=0.5, **arguments),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(x, y, batch_size=13, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("name", ["DPSGD", "DirectionalSGD", "TanhSGD"])
def test_training_does_not_depend_on_it(name):
    expected = trained(name, noise_multiplier=0.0)
    small = trained(name, noise_multiplier=0.0, chunk_bytes=3000)
    for one, other in zip(expected.weights, small.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_rules_and_bounds_go_by_it_while_the_step_is_traced(monkeypatch):
    seen = []
    bound = dp.mechanisms.DPSGD.bound

    def recorded(self, gradients):
        seen.append((chunk_bytes(), kept_elements()))
        return bound(self, gradients)

    monkeypatch.setattr(dp.mechanisms.DPSGD, "bound", recorded)
    before = chunk_bytes(), kept_elements()
    trained("DPSGD", chunk_bytes=before[0] // 8)
    assert set(seen) == {(before[0] // 8, before[1] // 8)}
    assert (chunk_bytes(), kept_elements()) == before
    seen.clear()
    trained("DPSGD")
    assert set(seen) == {before}


@pytest.mark.parametrize("name", ["DPAdam", "TanhSGD"])
def test_a_saved_model_keeps_it(name, tmp_path):
    model = trained(name, chunk_bytes=12345)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.chunk_bytes == 12345
    assert loaded.optimizer.get_config()["chunk_bytes"] == 12345


@pytest.mark.parametrize("value", [0, -1, 2.5, "4MB"])
def test_it_must_be_a_number_of_bytes(value):
    with pytest.raises(ValueError, match="Argument `chunk_bytes` must be a positive"):
        dp.optimizers.DPSGD(chunk_bytes=value)
