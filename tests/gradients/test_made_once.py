"""A value that XLA would compute anew in each kernel is computed once, and right."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients.made_once import made_once


@pytest.mark.parametrize("unknown", [[3, 5], [-7, 0], [], [2**31 - 1]])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_it_is_what_make_returns_whatever_the_unknown_value_is(unknown, jit_compile):
    @tf.function(jit_compile=jit_compile)
    def doubled(x, unknown):
        return made_once(lambda: 2.0 * x, tf.shape(x), x.dtype, unknown)

    for size in (0, 1, 6):
        x = tf.range(size, dtype=tf.float32)
        found = doubled(x, tf.constant(unknown, tf.int32))
        np.testing.assert_array_equal(found, 2.0 * x.numpy())


@pytest.mark.parametrize("unknown", [float("nan"), float("inf"), -1.0])
def test_no_number_leaves_it_without_a_turn(unknown):
    @tf.function(jit_compile=True)
    def negated(x, unknown):
        return made_once(lambda: -x, tf.shape(x), x.dtype, unknown)

    np.testing.assert_array_equal(negated(tf.ones([2]), tf.constant([unknown])), -1.0)


def compiled_program(depth):
    """XLA's program of a private step on a deep model."""
    model = keras.Sequential([keras.Input([4])])
    for _ in range(depth):
        model.add(keras.layers.Dense(4, activation="tanh"))
    optimizer = dp.optimizers.DPSGD(expected_batch_size=8)

    @tf.function(jit_compile=True)
    def step(x):
        losses = tf.reduce_sum(model(x), axis=1)
        optimizer.minimize(losses, model.trainable_variables)

    x = tf.ones([8, 4])
    optimizer.build(model.trainable_variables)
    step(x)
    return step.experimental_get_compiler_ir(x)(stage="optimized_hlo")


def test_a_program_grows_with_the_depth_and_not_with_its_square():
    lengths = [compiled_program(depth).count(" = ") for depth in (3, 6, 12)]
    first, second = np.diff(lengths)
    # Twice as many layers are added: 2, where every kernel of the second half held the
    # draw of noise and the sum of all norms it was 4.
    assert second < 2.6 * first
