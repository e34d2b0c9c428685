"""The slow way: right for any op, and without effect on the rest of a process."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_dp_ext.gradients import fallback
from tests.third_party.kit import check_fit, numbers

L = keras.layers
ROWS = 6


def test_a_way_that_cannot_be_taken_leaves_nothing_behind():
    """`tf.map_fn` leaves a caching device, with which `strategy.scope()` fails."""
    scope = tf.compat.v1.get_variable_scope()
    before = scope.caching_device

    @tf.function(input_signature=[tf.TensorSpec([4])], autograph=False)
    def run(x):
        with pytest.raises(ZeroDivisionError):
            fallback._map_fn(lambda row: 1 / 0, x)
        return x

    run(np.ones(4, np.float32))
    assert scope.caching_device is before


class Power(L.Layer):
    """A weight as an exponent: no rule."""

    def build(self, shape):
        self.exponents = self.add_weight(shape=shape[1:], initializer="ones")

    def call(self, x):
        return tf.pow(1.0 + tf.square(x), self.exponents)


def custom(function):
    """A layer of a function with a gradient of its own."""

    class Custom(L.Layer):
        def call(self, x):
            return function(x)

    return Custom()


@tf.custom_gradient
def cubed(x):
    """Its gradient needs what the result does not."""
    slope = 3.0 * tf.square(x)
    return x * x * x, lambda upstream: upstream * slope


@tf.custom_gradient
def doubled_rows(x):
    """Captures a shape that has the batch in it."""
    shape = tf.shape(x)
    return 2.0 * x, lambda upstream: upstream * tf.fill(shape, 2.0)


@tf.custom_gradient
def nested(x):
    """A custom gradient inside of a custom gradient."""
    return cubed(x) * x, lambda upstream: upstream * 4.0 * cubed(x)


def conditional(x):
    return tf.cond(tf.shape(x)[1] > 2, lambda: cubed(x), lambda: x)


CUSTOM = {
    "silu": tf.nn.silu,
    "capturing": cubed,
    "shapes": doubled_rows,
    "nested": nested,
    "recompute_grad": tf.recompute_grad(lambda x: tf.tanh(x) * x),
    "recompute_grad, silu": tf.recompute_grad(lambda x: tf.nn.silu(x) * x),
    "in a branch": conditional,
}


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
@pytest.mark.parametrize("before", [False, True], ids=["behind", "before"])
@pytest.mark.parametrize("name", CUSTOM)
def test_custom_gradients_that_capture_tensors(name, before, static):
    def build():
        inputs = keras.Input((4,))
        layers = [custom(CUSTOM[name]), L.Dense(3), Power()]
        if not before:
            layers = [L.Dense(4), Power(), custom(CUSTOM[name])]
        x = L.Dense(4)(inputs)
        for layer in layers:
            x = layer(x)
        return keras.Model(inputs, L.Dense(1)(x))

    x, y = 0.3 * numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    check_fit(build, x, y, "mse", static=static, slow_path=True)


def test_custom_gradients_under_xla():
    def build():
        inputs = keras.Input((4,))
        x = custom(tf.nn.silu)(Power()(L.Dense(4)(inputs)))
        return keras.Model(inputs, L.Dense(1)(x))

    x, y = 0.3 * numbers(ROWS, 4), numbers(ROWS, 1, seed=1)
    check_fit(build, x, y, "mse", jit_compile=True, slow_path=True)


TRANSPOSED = {
    "Conv1DTranspose": (L.Conv1DTranspose, (5, 2)),
    "Conv2DTranspose": (L.Conv2DTranspose, (5, 4, 2)),
    "Conv3DTranspose": (L.Conv3DTranspose, (3, 4, 2, 2)),
}


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_sizes_of_transposed_convolutions_are_cut_to_a_microbatch(name, static):
    layer, shape = TRANSPOSED[name]

    def build():
        inputs = keras.Input(shape)
        x = layer(2, 3, strides=2, padding="same")(Power()(inputs))
        x = ops.sum(x, axis=tuple(range(1, len(shape))))
        return keras.Model(inputs, L.Dense(1)(x))

    x, y = 0.3 * numbers(ROWS, *shape), numbers(ROWS, 1, seed=1)
    check_fit(build, x, y, "mse", static=static, slow_path=True)


ACTIVATIONS = {"silu": "silu", "recompute": tf.recompute_grad(tf.tanh)}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_custom_gradients_inside_of_loops(name):
    def build():
        inputs = keras.Input((5, 3))
        x = L.GRU(4, activation=ACTIVATIONS[name], return_sequences=True)(inputs)
        x = L.LSTM(3, activation=ACTIVATIONS[name])(x)
        return keras.Model(inputs, L.Dense(1)(x))

    x, y = 0.3 * numbers(ROWS, 5, 3), numbers(ROWS, 1, seed=1)
    check_fit(build, x, y, "mse", slow_path=True)
