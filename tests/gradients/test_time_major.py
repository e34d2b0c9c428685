"""Weights that meet the data after a transposition, where the batch is not first."""

import keras
import pytest
from keras import layers, ops

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


@pytest.mark.parametrize(
    "static, group, jit_compile", [(True, 1, True), (False, 1, False), (False, 2, True)]
)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_a_tape(
    name, static, group, jit_compile, rng, check_against_tape
):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((TIME, FEATURES)), *MODELS[name]()])
    x = rng.normal(size=(4 * group, TIME, FEATURES)).astype("float32")
    check_against_tape(model, x, static, group, jit_compile)


class Experts(keras.layers.Layer):
    """Mixtral's experts: all tokens of all examples, behind the axis of the experts."""

    def build(self, shape):
        self.first = self.add_weight(shape=(3, shape[-1], 5))
        self.second = self.add_weight(shape=(3, 5, 2))
        self.router = self.add_weight(shape=(shape[-1], 3))

    def call(self, x):
        tokens = ops.reshape(x, (-1, FEATURES))
        share = ops.softmax(ops.matmul(tokens, self.router))
        hidden = ops.tanh(ops.einsum("th,ehm->etm", tokens, self.first))
        out = ops.einsum("eti,eih->eth", hidden, self.second)
        out = ops.sum(out * ops.transpose(share, (1, 0))[:, :, None], axis=0)
        return ops.reshape(out, (-1, TIME, 2))


@pytest.mark.parametrize(
    "static, group, jit_compile", [(True, 1, True), (False, 1, False), (False, 2, True)]
)
def test_experts_have_a_rule(static, group, jit_compile, rng, check_against_tape):
    model = keras.Sequential([keras.Input((TIME, FEATURES)), Experts()])
    x = rng.normal(size=(8, TIME, FEATURES)).astype("float32")
    check_against_tape(model, x, static, group, jit_compile)
