"""The optimizer's variables are made in front of the step, which is traced once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp


def _optimizers():
    keywords = {"learning_rate": 0.1, "expected_batch_size": 8}
    return {
        "adam": dp.optimizers.DPAdam(**keywords),
        "momentum": dp.optimizers.DPSGD(momentum=0.9, **keywords),
        "lots": dp.optimizers.DPSGD(gradient_accumulation_steps=2, **keywords),
        "directional": dp.optimizers.DirectionalSGD(**keywords),
        "encoding": dp.optimizers.EncodedSGD(**keywords),
        "ema": dp.optimizers.DPSGD(use_ema=True, **keywords),
    }


class CountingModel(keras.Model):
    """Counts how often its training step is traced."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.dense = keras.layers.Dense(2)
        self.traces = 0

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


def _fitted(optimizer, is_built: bool, **compiled) -> CountingModel:
    keras.utils.set_random_seed(0)
    model = CountingModel()
    if is_built:
        model(np.zeros([1, 3]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **compiled)
    x = np.random.default_rng(0).normal(size=[16, 3]).astype(np.float32)
    model.fit(x, np.zeros(16, np.int32), batch_size=8, verbose=0)
    return model


@pytest.mark.parametrize("name", _optimizers())
def test_the_step_is_traced_once(name):
    optimizer = _optimizers()[name]
    assert _fitted(optimizer, is_built=True).traces == 1
    assert int(optimizer.releases) == (1 if name == "lots" else 2)


def test_the_step_is_traced_once_under_xla():
    optimizer = _optimizers()["adam"]
    assert _fitted(optimizer, is_built=True, jit_compile=True).traces == 1


def test_weights_that_the_trace_creates_take_two_traces():
    optimizer = _optimizers()["adam"]
    model = _fitted(optimizer, is_built=False)
    assert model.traces == 2
    assert int(optimizer.releases) == 2
    assert all(np.all(np.isfinite(value)) for value in model.get_weights())


def test_a_loop_of_ones_own_is_traced_once():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = _optimizers()["directional"]
    traces = []

    @tf.function
    def step(x, y):
        traces.append(1)
        losses = keras.losses.mean_squared_error(y, model(x))
        optimizer.minimize(losses, model.trainable_variables)

    for _ in range(2):
        step(tf.ones([8, 3]), tf.ones([8, 1]))
    assert len(traces) == 1
    assert int(optimizer.releases) == 2
