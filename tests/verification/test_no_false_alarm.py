"""The probe accepts every layer that treats examples by themselves."""

import warnings

import keras
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from benchmarks.layers import CASES, per_example_losses

EXAMPLES = 4


@pytest.mark.parametrize("name", CASES)
def test_every_layer_passes_the_probe(name):
    keras.utils.set_random_seed(3)
    model = CASES[name].model()
    x = CASES[name].inputs(EXAMPLES)
    optimizer = dp.optimizers.DPSGD(expected_batch_size=EXAMPLES)

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]], x.dtype)])
    def step(x):
        losses = per_example_losses(model(x, training=True))
        optimizer.minimize(losses, model.trainable_variables)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(tf.constant(x))
    assert int(optimizer.releases) == 1


@pytest.mark.parametrize("jit_compile", [False, True])
def test_grouped_convolutions_can_be_fitted(jit_compile):
    # Keras compiles each of them by itself, also in a step that is compiled.
    model = keras.Sequential(
        [
            keras.Input([8, 8, 4]),
            keras.layers.Conv2D(4, 3, groups=2),
            keras.layers.Conv2D(4, 3, groups=4),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    model.compile(dp.optimizers.DPSGD(), "mse", jit_compile=jit_compile)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(tf.ones([8, 8, 8, 4]), tf.ones([8, 2]), batch_size=8, verbose=0)
    assert not any("No fast per-example" in str(warning.message) for warning in caught)
    assert int(model.optimizer.releases) == 1
