"""For machines with a GPU (`make test-gpu`): a step there is the step of a tape."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_dp_ext as dp

pytestmark = pytest.mark.skipif(
    not tf.config.list_physical_devices("GPU"),
    reason="There is no GPU. What is known without one: docs/gpu.md.",
)

ROWS, CLIP = 8, 0.3
MODELS = {
    "dense": ((12,), [lambda: layers.Dense(8, activation="tanh")]),
    "convolution": ((8, 8, 2), [lambda: layers.Conv2D(4, 3, activation="tanh")]),
    "LSTM by cuDNN": ((6, 4), [lambda: layers.LSTM(5)]),
    "LSTM": ((6, 4), [lambda: layers.LSTM(5, use_cudnn=False)]),
}


def check(name, jit_compile):
    """One step moves the weights by the clipped sum of a tape for each example."""
    keras.utils.set_random_seed(0)
    shape, stack = MODELS[name]
    model = keras.Sequential(
        [keras.Input(shape), *(make() for make in stack), layers.Flatten()]
    )
    model.add(layers.Dense(3))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, *shape)).astype("float32")
    y = generator.integers(0, 3, ROWS)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    values = [variable.value for variable in model.trainable_variables]
    total = [np.zeros(value.shape) for value in values]
    for row in range(ROWS):
        with tf.GradientTape() as tape:
            value = loss(y[row : row + 1], model(x[row : row + 1]))
        gradients = [g.numpy() for g in tape.gradient(value, values)]
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=float)) for g in gradients))
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += gradient * min(1.0, CLIP / norm)
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0,
        l2_norm_clip=CLIP,
        noise_multiplier=1e-9,
        expected_batch_size=ROWS,
    )
    model.compile(optimizer, loss, jit_compile=jit_compile)
    model.fit(x, y, batch_size=ROWS, verbose=0)
    largest = max(np.abs(sum_).max() for sum_ in total)
    for old, new, sum_ in zip(before, model.trainable_variables, total, strict=True):
        # GPUs multiply with ten bits of precision, unless told otherwise.
        np.testing.assert_allclose((old - new) * ROWS, sum_, 1e-2, 5e-3 * largest)


@pytest.mark.parametrize("jit_compile", ["auto", False])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_a_tape_for_each_example(name, jit_compile):
    check(name, jit_compile)
