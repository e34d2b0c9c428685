"""Randomness, sizes and values that only some models accept."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.verification.progress import Progress

L = keras.layers


def fit(model, x, y, loss="mse"):
    model.compile(dp.optimizers.DPSGD(expected_batch_size=8), loss, jit_compile=False)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8), verbose=0)
    return int(model.optimizer.releases)


def vectors(width=5):
    return np.random.default_rng(0).normal(size=(8, width)).astype("float32")


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + tf.random.normal(tf.shape(x)),
        lambda x: tf.nn.dropout(x, 0.5),
        lambda x: x * tf.random.uniform([]),
    ],
    ids=["normal", "dropout", "one number"],
)
def test_randomness_without_a_seed_is_no_mixing(draw):
    model = keras.Sequential([L.Dense(4), L.Lambda(draw), L.Dense(2)])
    assert fit(model, vectors(), np.zeros((8, 2), "float32")) == 1


def test_randomness_without_a_seed_hides_no_mixing():
    def mix(x):
        return x + tf.random.normal(tf.shape(x)) - tf.reduce_mean(x, axis=0)

    model = keras.Sequential([L.Dense(4), L.Lambda(mix), L.Dense(2)])
    with pytest.raises(ValueError, match="mix"):
        fit(model, vectors(), np.zeros((8, 2), "float32"))


def test_shuffled_examples_are_mixing():
    model = keras.Sequential([L.Lambda(tf.random.shuffle), L.Dense(2)])
    with pytest.raises(ValueError, match="mix"):
        fit(model, vectors(), np.zeros((8, 2), "float32"))


def test_images_of_any_size_are_verified_at_one_that_the_model_accepts():
    model = keras.Sequential(
        [
            keras.Input([None, None, 3]),
            L.Conv2D(4, 7, activation="relu"),
            L.MaxPool2D(4),
            L.GlobalAveragePooling2D(),
            L.Dense(2),
        ]
    )
    x = np.random.default_rng(0).normal(size=(8, 20, 20, 3)).astype("float32")

    model.compile(dp.optimizers.DPSGD(expected_batch_size=8), "mse", jit_compile=False)
    signature = (
        tf.TensorSpec([None, None, None, 3]),
        tf.TensorSpec([None, 2]),
    )
    data = tf.data.Dataset.from_generator(
        lambda: iter([(x, np.zeros((8, 2), "float32"))]), output_signature=signature
    )
    model.fit(data, steps_per_epoch=1, verbose=0)
    assert int(model.optimizer.releases) == 1


def test_classes_that_are_counted_from_one():
    def loss(y, predictions):
        return keras.losses.sparse_categorical_crossentropy(
            y - 1, predictions, from_logits=True
        )

    y = np.random.default_rng(0).integers(1, 4, 8).astype("int32")
    assert fit(keras.Sequential([L.Dense(3)]), vectors(), y, loss) == 1


def test_a_vocabulary_without_unknown_words():
    words = np.array(["red", "green", "blue", "red"] * 2, dtype=object)
    inputs = keras.Input([], dtype="string")
    indices = L.StringLookup(vocabulary=["red", "green", "blue"], num_oov_indices=0)
    encoded = L.CategoryEncoding(num_tokens=3, output_mode="one_hot")
    model = keras.Model(inputs, L.Dense(2)(encoded(indices(inputs))))
    assert fit(model, words, np.zeros((8, 2), "float32")) == 1


@pytest.mark.parametrize(
    ("layer", "advice", "not_advice"),
    [
        (L.Lambda(lambda x: x - tf.reduce_max(x)), "batch axis", "freeze it"),
        (
            L.MixUp(seed=1),
            "augmentation",
            "GroupNormalization",
        ),
    ],
)
def test_advice_depends_on_what_mixes(layer, advice, not_advice):
    x = np.random.default_rng(0).uniform(size=(8, 4, 4, 3)).astype("float32")
    model = keras.Sequential([layer, L.Flatten(), L.Dense(2)])
    with pytest.raises(ValueError, match="mixes the examples") as error:
        fit(model, x, np.zeros((8, 2), "float32"))
    assert advice in str(error.value)
    assert not_advice not in str(error.value)


def test_a_long_verification_says_what_is_going_on(capfd):
    import time

    with Progress("verifying", seconds=0.05):
        time.sleep(0.5)
    assert "verifying" in capfd.readouterr().err
    with Progress("verifying", seconds=0.5):
        pass
    time.sleep(0.6)
    assert "verifying" not in capfd.readouterr().err


class OwnGradient(keras.layers.Layer):
    """Its backward pass uses what the forward pass computes for it alone."""

    def call(self, x):
        @tf.custom_gradient
        def tanh(x):
            slope = 1.0 - tf.square(tf.tanh(x))
            return tf.tanh(x), lambda dy: dy * slope

        return tanh(keras.ops.fori_loop(0, 2, lambda _, value: value * 1.1, x))


def test_a_custom_gradient_beside_a_loop(rng):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), OwnGradient(), keras.layers.Dense(2)]
    )
    optimizer = dp.optimizers.DPSGD(learning_rate=0.1, noise_multiplier=1.0)
    model.compile(optimizer, loss="mse", jit_compile=False)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    model.fit(x, y, batch_size=8, verbose=0)
    assert int(optimizer.releases) == 3
