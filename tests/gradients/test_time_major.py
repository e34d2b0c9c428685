"""Weights that meet the data after a transposition, where the batch is not first."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from keras_dp_ext.gradients import per_example_gradients

TIME, FEATURES = 6, 4


class TimeMajor(keras.layers.Layer):
    """Applies a layer to `[time, batch, features]`."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def build(self, shape):
        self.layer.build((shape[1], shape[0], *shape[2:]))

    def call(self, x):
        return ops.transpose(self.layer(ops.transpose(x, (1, 0, 2))), (1, 0, 2))


class Scale(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones")

    def call(self, x):
        return x * self.scale


class BatchInTheMiddle(keras.layers.Layer):
    """`[time, batch * 2, features / 2]`: an example has a block of two."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1] // 2, 3))

    def call(self, x):
        x = ops.transpose(x, (1, 0, 2))
        x = ops.matmul(ops.reshape(x, (TIME, -1, FEATURES // 2)), self.kernel)
        return ops.transpose(ops.reshape(x, (TIME, -1, 6)), (1, 0, 2))


MODELS = {
    "dense": lambda: [
        TimeMajor(layers.Dense(5, activation="tanh")),
        TimeMajor(layers.Dense(3)),
    ],
    "scale": lambda: [TimeMajor(Scale()), layers.Dense(3)],
    "norm": lambda: [TimeMajor(layers.LayerNormalization()), layers.Dense(3)],
    "blocks": lambda: [BatchInTheMiddle()],
}


def losses_of(model, x):
    return tf.reduce_sum(tf.square(model(x) - 0.3), axis=[1, 2])


@pytest.mark.parametrize(
    "static, group, jit_compile", [(True, 1, True), (False, 1, False), (False, 2, True)]
)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_a_tape(name, static, group, jit_compile, rng):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((TIME, FEATURES)), *MODELS[name]()])
    x = rng.normal(size=(4 * group, TIME, FEATURES)).astype("float32")
    variables = model.trainable_variables
    coefficients = np.linspace(0.5, 1.5, 4).astype("float32")
    shape = [len(x) if static else None, TIME, FEATURES]

    @tf.function(input_signature=[tf.TensorSpec(shape)], jit_compile=jit_compile)
    def run(x):
        gradients = per_example_gradients(losses_of(model, x), variables, group)
        return gradients.norm_squared(), gradients.weighted_sum(coefficients)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # No slow path.
        norms, sums = run(x)
    rows = []
    for start in range(0, len(x), group):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses_of(model, x[start : start + group]))
        rows.append(tape.gradient(loss, [v.value for v in variables]))
    truth = [np.stack(column) for column in zip(*rows, strict=True)]
    np.testing.assert_allclose(
        norms, sum(np.sum(np.reshape(t, (4, -1)) ** 2, 1) for t in truth), rtol=1e-4
    )
    for found, expected in zip(sums, truth, strict=True):
        expected = np.tensordot(coefficients, expected, 1)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
