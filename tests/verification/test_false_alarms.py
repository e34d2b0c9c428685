"""No honest model is refused, and no wrong rule passes, whatever the model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from benchmarks.models.wide_resnet import wide_resnet
from keras_dp_ext.gradients import registry
from tests.verification.random_models import (
    WeightNormalizedDense,
    fit,
    random_model,
)

L = keras.layers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def train(model, x, y, loss="mse"):
    fit(model, x, y, loss, dp.optimizers.DPSGD(expected_batch_size=len(x)))
    assert int(model.optimizer.releases) == 1


def refused(seeds) -> list[int]:
    found = []
    for seed in seeds:
        model, x, y, loss = random_model(seed)
        try:
            train(model, x, y, loss)
        except ValueError as error:
            found.append((seed, str(error)[:200]))
        keras.backend.clear_session()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_random_models_pass(seed):
    assert refused([seed]) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_two_hundred_random_models_pass(first):
    assert refused(range(first, first + 25)) == []


def by_a_factor(factor):
    """Every rule gives gradients that are too large by a factor."""

    def wrong(rule):
        def scaled(use, d, split):
            return rule(use, tf.cast(factor, d.dtype) * d, split)

        return scaled

    return {name: wrong(rule) for name, rule in registry._RULES.items()}


def caught(seeds, monkeypatch) -> int:
    with monkeypatch.context() as patch:
        for name, rule in by_a_factor(1.001).items():
            patch.setitem(registry._RULES, name, rule)
        return sum("are wrong" in message for _, message in refused(seeds))


def test_rules_that_are_wrong_by_a_thousandth_are_caught(monkeypatch):
    assert caught(range(6), monkeypatch) == 6


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_rules_that_are_wrong_by_a_thousandth_are_caught_in_200_models(
    first, monkeypatch
):
    assert caught(range(first, first + 25), monkeypatch) == 25


@pytest.mark.parametrize("seed", range(2))
def test_weight_standardisation_raises_no_false_alarm(seed):
    keras.utils.set_random_seed(seed)
    model = wide_resnet(10, 1, standardized=True, input_shape=(8, 8, 3))
    x = np.random.default_rng(seed).normal(size=(8, 8, 8, 3)).astype("float32")
    train(model, x, np.zeros(8, "int32"), "sparse_categorical_crossentropy")


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_compared_in_full_precision(policy):
    """TensorFlow adds up the gradient of a bias in bfloat16, and gets it wrong."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input([32, 32, 8]),
        L.DepthwiseConv2D(3, padding="same", dtype=policy),
        L.Activation("relu", dtype=policy),
        L.GlobalAveragePooling2D(dtype=policy),
        L.Dense(2, dtype="float32"),
    ]
    x = np.random.default_rng(0).normal(size=(8, 32, 32, 8)).astype("float32")
    train(keras.Sequential(layers), x, np.zeros((8, 2), "float32"))


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_gradients_of_any_size_are_verified(factor, monkeypatch):
    def loss(y, predictions):
        return factor * keras.ops.mean(keras.ops.square(predictions - y), axis=-1)

    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    y = np.zeros((8, 2), "float32")
    train(keras.Sequential([L.Dense(3), L.Dense(2)]), x, y, loss)
    for name, rule in by_a_factor(1.001).items():
        monkeypatch.setitem(registry._RULES, name, rule)
    with pytest.raises(ValueError, match="are wrong"):
        train(keras.Sequential([L.Dense(3), L.Dense(2)]), x, y, loss)


class SpectrallyNormalized(L.Layer):
    """A kernel over its largest singular value, by power iteration."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel")

    def call(self, x):
        u = keras.ops.ones((1, 4))
        for _ in range(5):
            u = keras.ops.normalize(u @ keras.ops.transpose(self.kernel) @ self.kernel)
        return x @ self.kernel / keras.ops.norm(self.kernel @ keras.ops.transpose(u))


class Saturated(L.Layer):
    """Attention that is one at one place and zero at all others."""

    def call(self, x):
        return keras.ops.softmax(1e3 * x) * x


HONEST = {
    "spectral normalisation": lambda: [SpectrallyNormalized(), L.Dense(2)],
    "weight normalisation": lambda: [WeightNormalizedDense(4), L.Dense(2)],
    "normalisation behind zeros": lambda: [
        L.Dense(4, kernel_initializer="zeros"),
        L.LayerNormalization(),
        L.Dense(4, kernel_initializer="zeros"),
        L.GroupNormalization(2),
        L.Dense(2, kernel_initializer="zeros"),
    ],
    "a gain of zero": lambda: [
        L.Dense(4),
        L.LayerNormalization(gamma_initializer="zeros"),
        L.Dense(2),
    ],
    "a saturated softmax": lambda: [L.Dense(4), Saturated(), L.Dense(2)],
    "a bias before a normalisation": lambda: [
        L.Dense(4),
        L.LayerNormalization(center=False, scale=False),
        L.Dense(2),
    ],
}


@pytest.mark.parametrize("name", HONEST)
def test_layers_that_lose_most_of_a_gradient_raise_no_false_alarm(name):
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
    model = keras.Sequential([keras.Input([6]), *HONEST[name]()])
    train(model, x, np.ones((8, 2), "float32"))
