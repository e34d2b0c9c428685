"""The rule of docs/adding_a_rule.md is what the engine uses, and it is right."""

import pathlib
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients import registry

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "adding_a_rule.md"


class Centre(keras.layers.Layer):
    def build(self, shape):
        self.centre = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return tf.math.squared_difference(x, self.centre.value)


@pytest.fixture
def snippet(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return code


def update(scale: float) -> np.ndarray:
    """What one step without noise and with a tight clip does to the centre."""
    model = keras.Sequential([keras.Input([3]), Centre()])
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=0.5, noise_multiplier=0.0),
        loss=lambda y, z: scale * tf.reduce_sum(z, axis=-1),
    )
    x = np.random.default_rng(0).normal(size=[8, 3]).astype(np.float32)
    model.fit(x, np.zeros(8), batch_size=8, verbose=0)
    return 1.0 - model.get_weights()[0], x


def test_the_rule_of_the_page_is_used_and_right(snippet):
    exec(snippet, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # No slow path.
        change, x = update(1.25)
    gradients = 1.25 * -2.0 * (x - 1.0)
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    expected = (gradients * np.minimum(1.0, 0.5 / norms)).mean(axis=0)
    np.testing.assert_allclose(change, expected, rtol=1e-4, atol=1e-6)


def test_a_wrong_rule_is_caught(snippet):
    exec(snippet.replace("-2.0 *", "-2.002 *"), {})
    with pytest.raises(ValueError, match=r"centre|Centre"):
        update(1.5)
