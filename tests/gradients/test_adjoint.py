"""Gradients of computed weights, for all rows at once, are those of TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.adjoint import adjoint_of_rows

SHAPE = (3, 2, 4)


def standardized(w):
    centred = w - tf.reduce_mean(w, axis=(0, 1), keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=(0, 1), keepdims=True)
    return centred * tf.math.rsqrt(tf.maximum(6.0 * variance, 1e-4))


def normalized(w):
    return w / tf.sqrt(tf.reduce_sum(w * w, axis=[0, 1]))


@tf.custom_gradient
def with_own_gradient(x):
    return tf.square(x), lambda dy: 7.0 * dy


KNOWN = {
    "standardised": standardized,
    "normalised": normalized,
    "a constant factor": lambda w: 0.5 * w,
    "shared": lambda w: w + tf.tanh(w) * w,
    "outer axes": lambda w: tf.expand_dims(w, 0) * 2.0,
    "transposed": lambda w: tf.transpose(tf.square(tf.reshape(w, [6, 4]))),
    "stopped": lambda w: w / tf.stop_gradient(tf.reduce_sum(tf.abs(w))),
    "largest": lambda w: tf.maximum(w, 0.1) - tf.minimum(tf.exp(w), 1.0),
    "squared differences": lambda w: tf.math.squared_difference(
        w, tf.reduce_mean(w, axis=-1, keepdims=True)
    ),
    "sigmoid": lambda w: tf.sigmoid(w) * tf.math.reciprocal(2.0 + w * w),
    "larger than its variable": lambda w: w * tf.ones([5, *SHAPE]),
    "a scalar": lambda w: tf.reduce_sum(w * w),
}


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("name", KNOWN)
def test_all_rows_at_once_are_rows_one_by_one(name, rows):
    variable = tf.Variable(np.random.default_rng(0).normal(size=SHAPE), dtype="float32")
    size = KNOWN[name](variable).shape

    @tf.function(input_signature=[tf.TensorSpec([rows, *size])], autograph=False)
    def both(given):
        weight = KNOWN[name](tf.convert_to_tensor(variable))
        handle = tf.compat.v1.get_default_graph().capture(variable.handle)
        together = adjoint_of_rows(weight, handle)(given)
        each = [
            tf.gradients(weight, handle, grad_ys=given[number])[0]
            for number in range(3)
        ]
        return together, tf.stack(each)

    given = np.random.default_rng(1).normal(size=(3, *size)).astype("float32")
    together, each = both(given)
    np.testing.assert_allclose(together, each, rtol=2e-5, atol=2e-5)


UNKNOWN = {
    "an op that is not known": lambda w: tf.linalg.matmul(w, w, transpose_b=True),
    "a gradient of one's own": with_own_gradient,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_to_tensorflow(name):
    variable = tf.Variable(tf.ones(SHAPE))

    @tf.function(autograph=False)
    def trace():
        weight = UNKNOWN[name](tf.convert_to_tensor(variable))
        handle = tf.compat.v1.get_default_graph().capture(variable.handle)
        assert adjoint_of_rows(weight, handle) is None
        return weight

    trace()
