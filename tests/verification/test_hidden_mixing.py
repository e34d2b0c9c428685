"""Mixing that made-up batches do not meet is refused by `fit` all the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

FEATURES = 5


class Apply(keras.layers.Layer):
    """A layer that computes `function(x)`."""

    def __init__(self, function, **keywords):
        super().__init__(**keywords)
        self._function = function

    def call(self, x):
        return self._function(x)

    def compute_output_shape(self, shape):
        return shape


@tf.custom_gradient
def clip_backward(x):
    return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 100.0)


@tf.custom_gradient
def zero_all_backward(x):
    def gradient(dy):
        return tf.where(tf.reduce_any(tf.abs(dy) > 1e3), tf.zeros_like(dy), dy)

    return tf.identity(x), gradient


@tf.custom_gradient
def zero_all_by_norm_backward(x):
    def gradient(dy):
        return tf.cond(tf.norm(dy) > 1e4, lambda: tf.zeros_like(dy), lambda: dy)

    return tf.identity(x), gradient


def zero_all_if_large(x):
    return tf.where(tf.reduce_max(tf.abs(x)) > 1e3, tf.zeros_like(x), x)


def skip_if_not_finite(x):
    is_fine = tf.reduce_all(tf.math.is_finite(x))
    return tf.cond(is_fine, lambda: x, lambda: tf.zeros_like(x))


def multiply_by_finite(x):
    return x * tf.cast(tf.reduce_all(tf.math.is_finite(x)), x.dtype)


def switch_by_mean(x):
    return tf.cond(tf.reduce_mean(x) > 1000.0, lambda: 2.0 * x, lambda: x)


def add_tiny_mean(x):
    return x + 1e-7 * tf.reduce_mean(x, axis=0)


def add_what_is_left_of_the_mean(x):
    return x + tf.nn.relu(tf.reduce_mean(x, axis=0, keepdims=True) - 1e5)


def halve_until_small(x):
    return tf.while_loop(
        lambda x: tf.reduce_max(tf.abs(x)) > 1e6, lambda x: [x / 2.0], [x]
    )[0]


def neighbour_if_large(x):
    return tf.where(x > 1e4, tf.roll(x, 1, axis=0), x)


def row_by_value(x):
    number = tf.where(x[:, 0] > 1e4, 0, tf.range(tf.shape(x)[0]))
    return tf.gather(x, number)


def in_an_inner_function(x):
    return tf.function(zero_all_if_large)(x)


class RarelyMixing(keras.layers.Layer):
    """Three of a hundred batches are mixed, by a seed."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x):
        is_mixed = keras.random.uniform([], seed=self.seeds) < 0.03
        return tf.where(is_mixed, x + tf.reverse(x, [0]), x)


ATTACKS = {
    function.__name__: function
    for function in (
        clip_backward,
        zero_all_backward,
        zero_all_by_norm_backward,
        zero_all_if_large,
        skip_if_not_finite,
        multiply_by_finite,
        switch_by_mean,
        add_tiny_mean,
        add_what_is_left_of_the_mean,
        halve_until_small,
        neighbour_if_large,
        row_by_value,
        in_an_inner_function,
    )
}


def fit(layer, batch_size=4, examples=8, jit_compile=False):
    model = keras.Sequential(
        [
            keras.Input([FEATURES]),
            keras.layers.Dense(FEATURES),
            layer,
            keras.layers.Dense(2),
        ]
    )
    model.compile(dp.optimizers.DPSGD(), "mse", jit_compile=jit_compile)
    before = [weight.numpy() for weight in model.trainable_variables]
    x = np.ones([examples, FEATURES], np.float32)
    y = np.ones([examples, 2], np.float32)
    try:
        model.fit(x, y, batch_size=batch_size, epochs=1, verbose=0)
    except ValueError:
        for weight, old in zip(model.trainable_variables, before, strict=True):
            np.testing.assert_array_equal(weight.numpy(), old)
        raise


@pytest.mark.parametrize("examples", [8, 10], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ATTACKS)
def test_mixing_behind_a_condition_is_refused(name, examples):
    layer = Apply(ATTACKS[name], name="culprit")
    with pytest.raises(ValueError, match=r"(?s)mix.*culprit.*What to do"):
        fit(layer, examples=examples)


def test_mixing_that_is_rare_is_refused():
    with pytest.raises(ValueError, match=r"(?s)mix.*culprit.*What to do"):
        fit(RarelyMixing(name="culprit"))


def test_mixing_behind_a_condition_is_refused_under_xla():
    with pytest.raises(ValueError, match=r"(?s)mix.*culprit.*What to do"):
        fit(Apply(switch_by_mean, name="culprit"), jit_compile=True)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_loss_that_looks_at_all_labels_is_refused(loss):
    model = keras.Sequential([keras.Input([FEATURES]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(), loss)
    with pytest.raises(ValueError, match=r"(?s)mix.*hinge.*\(All\).*What to do"):
        model.fit(np.ones([4, FEATURES]), np.ones([4, 1]), batch_size=4, verbose=0)


@tf.custom_gradient
def clip_each_backward(x):
    return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 100.0, axes=[-1])


def zero_large_rows(x):
    is_large = tf.reduce_any(tf.abs(x) > 1e3, axis=-1, keepdims=True)
    return tf.where(is_large, tf.zeros_like(x), x)


def assert_and_pass(x):
    tf.debugging.assert_all_finite(tf.reduce_mean(x), "not finite")
    return x


@pytest.mark.parametrize("examples", [8, 10], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function", [clip_each_backward, zero_large_rows, assert_and_pass]
)
def test_the_same_for_each_example_is_trained(function, examples):
    fit(Apply(function), examples=examples)
