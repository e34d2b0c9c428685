"""What cannot be trained privately is refused before anything is updated."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients import registry

L = keras.layers

both_compilers = pytest.mark.parametrize("jit_compile", [False, True])


class SubtractBatchMean(L.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, axis=0, keepdims=True)


class CountTokensOfTheBatch(L.Layer):
    """Integer data: no gradient tells that examples are mixed."""

    def call(self, tokens):
        total = tf.reduce_sum(tf.cast(tokens, tf.float32))
        ones = tf.cast(tf.ones_like(tokens), tf.float32)
        return tf.cast(tokens, tf.float32) + total * ones


class RelativeToLargestToken(L.Layer):
    def call(self, tokens):
        tokens = tf.cast(tokens, tf.float32)
        return tokens / (1.0 + tf.reduce_max(tokens))


class AddTraceOfTheBatch(L.Layer):
    """Mixes so little that it hardly shows."""

    def call(self, x):
        return x + 1e-3 * keras.ops.mean(x, axis=0, keepdims=True)


class RunningMean(L.Layer):
    def build(self, shape):
        self.mean = self.add_weight(
            shape=(shape[-1],), trainable=False, initializer="zeros", name="mean"
        )

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, axis=0))
        return x


def fit(layers, jit_compile, x=None):
    if x is None:
        x = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    y = np.random.default_rng(1).integers(0, 3, len(x))
    model = keras.Sequential([*layers, L.Dense(3, activation="softmax")])
    model.build((None, x.shape[1]))
    before = model.get_weights()
    model.compile(
        dp.optimizers.DPSGD(learning_rate=0.5),
        loss="sparse_categorical_crossentropy",
        jit_compile=jit_compile,
    )
    try:
        model.fit(x, y, batch_size=8, verbose=0)
    finally:
        changed = any(
            not np.array_equal(old, new)
            for old, new in zip(before, model.get_weights(), strict=True)
        )
        model.changed = changed
        fit.last = model
    return model


@both_compilers
def test_batch_normalization_is_refused_by_name(jit_compile):
    with pytest.raises(ValueError, match=r"moving_mean.*GroupNormalization"):
        fit([L.Dense(5), L.BatchNormalization(name="norm")], jit_compile)
    assert not fit.last.changed


def test_frozen_batch_normalization_is_fine():
    norm = L.BatchNormalization()
    norm.trainable = False
    assert fit([L.Dense(5), norm], False).changed


@both_compilers
@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_layer_that_subtracts_the_batch_mean_is_refused(where, jit_compile):
    layers = [SubtractBatchMean(name="centre"), L.Dense(5)]
    if where == "behind":
        layers.reverse()
    with pytest.raises(ValueError, match=r"mixes the examples.*centre") as error:
        fit(layers, jit_compile)
    assert "dense" in str(error.value)
    assert not fit.last.changed


@pytest.mark.parametrize("layer", [CountTokensOfTheBatch, RelativeToLargestToken])
def test_a_layer_that_mixes_integer_inputs_is_refused(layer):
    x = np.random.default_rng(0).integers(0, 4, (16, 6))
    inputs = keras.Input([6], dtype="int32")
    with pytest.raises(ValueError, match="mixes the examples"):
        fit([inputs, layer(), L.Dense(5)], False, x)
    assert not fit.last.changed


def test_a_trace_of_mixing_is_refused():
    with pytest.raises(ValueError, match="mixes the examples"):
        fit([AddTraceOfTheBatch(), L.Dense(5)], False)


def test_a_second_model_of_the_same_ops_is_probed_by_itself():
    """The axis of a mean is all that tells these models apart."""

    class Centre(L.Layer):
        def __init__(self, axis):
            super().__init__()
            self.axis = axis

        def call(self, x):
            return x - keras.ops.mean(x, axis=self.axis, keepdims=True)

    assert fit([Centre(1), L.Dense(5)], False).changed
    with pytest.raises(ValueError, match="mixes the examples"):
        fit([Centre(0), L.Dense(5)], False)


@both_compilers
def test_a_running_mean_of_the_data_is_refused_by_name(jit_compile):
    with pytest.raises(ValueError, match=r"running_mean.*without bound or noise"):
        fit([L.Dense(5), RunningMean()], jit_compile)
    # The forward pass of no step may have run either.
    assert not fit.last.changed


@both_compilers
def test_a_wrong_rule_is_caught(monkeypatch, jit_compile):
    rule = registry.find_rule("MatMul")
    monkeypatch.setitem(
        registry._RULES, "MatMul", lambda use, d, split: rule(use, 1.01 * d, split)
    )
    with pytest.raises(ValueError, match=r"kernel.*are wrong"):
        fit([L.Dense(5)], jit_compile)
    assert not fit.last.changed


@both_compilers
def test_a_rule_that_gives_gradients_to_the_wrong_example_is_caught(
    monkeypatch, jit_compile
):
    rule = registry.find_rule("MatMul")
    monkeypatch.setitem(
        registry._RULES,
        "MatMul",
        lambda use, d, split: rule(use, d, split).map_factors(
            lambda factor: tf.reverse(factor, [0])
        ),
    )
    with pytest.raises(ValueError, match=r"kernel.*are wrong"):
        fit([L.Dense(5)], jit_compile)
    assert not fit.last.changed


def test_a_wrong_norm_is_caught(monkeypatch):
    from keras_dp_ext.gradients.contributions import OuterProducts

    norm = OuterProducts.norm_squared
    monkeypatch.setattr(
        OuterProducts,
        "norm_squared",
        lambda self, scale=None: 0.5 * norm(self, scale),
    )
    with pytest.raises(ValueError, match="norms are wrong"):
        fit([L.Dense(5)], False)
    assert not fit.last.changed


def test_dropout_is_no_mixing():
    assert fit([L.Dense(5), L.Dropout(0.5), L.GaussianNoise(0.1)], False).changed


def test_masked_sequence_losses_that_depend_on_the_batch_are_refused():
    """Keras rescales a masked loss by the number of valid steps in the batch."""
    x = np.random.default_rng(0).integers(0, 3, (16, 5))
    y = np.random.default_rng(1).integers(0, 3, (16, 5))
    model = keras.Sequential(
        [
            keras.Input([5], dtype="int32"),
            L.Embedding(3, 4, mask_zero=True),
            L.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        dp.optimizers.DPSGD(learning_rate=0.5), loss="sparse_categorical_crossentropy"
    )
    with pytest.raises(ValueError, match="mixes the examples"):
        model.fit(x, y, batch_size=8, verbose=0)
