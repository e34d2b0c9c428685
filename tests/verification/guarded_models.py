"""A model whose training step can be made to do what it must not."""

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp

EXAMPLES, FEATURES = 16, 5


def data():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, FEATURES)).astype("float32")
    return x, generator.normal(size=(EXAMPLES, 1)).astype("float32")


class Stepping(keras.Model):
    """Hands its whole training step to a function `step(model, x, y)`."""

    def __init__(self, step):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.state = self.add_weight(
            shape=(), initializer="zeros", trainable=False, name="state"
        )
        self.tracker = keras.metrics.Mean()
        self.step = step

    def call(self, x):
        return self.dense(x)

    def errors(self, x, y):
        return tf.reduce_mean(tf.square(y - self(x)), axis=-1)

    def update(self, x, y):
        self.optimizer.minimize(self.errors(x, y), self.trainable_variables)

    def train_step(self, pair):
        self.step(self, *pair)
        return {"epochs": tf.constant(1.0)}


def train(
    step, optimizer=None, jit_compile=False, epochs=1, batch_size=EXAMPLES, **fit
):
    """Trains; `train.changed` tells whether any weight is another one afterwards."""
    x, y = data()
    model = Stepping(step)
    model(x)
    optimizer = optimizer or dp.optimizers.DPAdam(noise_multiplier=1.0)
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    before = [variable.numpy() for variable in variables]
    model.compile(optimizer, jit_compile=jit_compile)
    try:
        model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0, **fit)
    finally:
        train.changed = any(
            not np.array_equal(old, variable.numpy())
            for old, variable in zip(before, variables, strict=True)
        )
    return model
