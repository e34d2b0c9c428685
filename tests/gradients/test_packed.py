"""Small gradients that are packed are those that they were."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import per_example_gradients
from keras_dp_ext.gradients.contributions import Mapped, OuterProducts, Rows
from keras_dp_ext.gradients.lazy_gradients import LazyGradients

SHAPES = [(3,), (), (2, 2), (4, 5), (3,)]


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    return [generator.normal(size=(6, *shape)).astype("float32") for shape in SHAPES]


def lazy(rows):
    contributions = [Rows(tf.constant(value), value.shape[1:]) for value in rows]
    left, right = np.ones((6, 1, 2), "float32"), np.ones((6, 1, 7), "float32")
    contributions.insert(1, OuterProducts(left, right, (2, 7)))
    contributions.insert(3, None)
    contributions[2] = Mapped(
        contributions[2],
        (1, 1),
        rows_map=lambda value: tf.reshape(value, [-1, 1, 1]),
        sum_map=lambda value: tf.reshape(value, [1, 1]),
        scale_map=lambda value: tf.reshape(value, []),
    )
    shapes = [(9,) if one is None else one.shape for one in contributions]
    return LazyGradients(contributions, [tf.TensorShape(s) for s in shapes], 6)


def expected(rows):
    values = [*rows]
    values.insert(1, np.ones((6, 2, 7), "float32"))
    values[2] = values[2].reshape(6, 1, 1)
    values.insert(3, np.zeros((6, 9), "float32"))
    return values


def test_sums_norms_and_maps(rows):
    gradients, values = lazy(rows), expected(rows)
    coefficients = tf.range(6.0)
    for found, value in zip(gradients.weighted_sum(coefficients), values, strict=True):
        np.testing.assert_allclose(
            found, np.tensordot(coefficients, value, 1), rtol=1e-5, atol=1e-5
        )
    scales = [np.full(value.shape[1:], 2.0 + n) for n, value in enumerate(values)]
    scales = [tf.constant(scale, tf.float32) for scale in scales]
    scales[0] = None
    squares = [
        np.square(value / (1.0 if scale is None else scale)).reshape(6, -1).sum(1)
        for value, scale in zip(values, scales, strict=True)
    ]
    np.testing.assert_allclose(gradients.norm_squared(scales), sum(squares), rtol=1e-5)
    for found, value in zip(
        gradients.sum_of(lambda chunk: [tf.tanh(part) for part in chunk], 400),
        values,
        strict=True,
    ):
        np.testing.assert_allclose(found, np.tanh(value).sum(0), rtol=1e-5, atol=1e-5)


def test_a_row_that_is_not_finite_is_zero_in_all_variables(rows):
    rows[0][2, 1] = np.nan
    gradients, values = lazy(rows), expected(rows)
    norms = gradients.norm_squared()
    assert norms[2] == 0.0
    keep = np.arange(6) != 2
    for found, value in zip(gradients.weighted_sum(tf.ones([6])), values, strict=True):
        np.testing.assert_allclose(found, value[keep].sum(0), rtol=1e-5, atol=1e-5)


class TimesTwo(keras.layers.Layer):
    """Twice the examples inside, once again outside: two rows for each example."""

    def build(self, shape):
        self.dense = keras.layers.Dense(4)
        self.dense.build((None, shape[-1] // 2))

    def call(self, x):
        halves = tf.reshape(x, [-1, x.shape[-1] // 2])
        return tf.reshape(self.dense(halves), [-1, 8])


def test_axes_that_hold_several_positions_of_an_example_are_read_off_the_graph(
    monkeypatch,
):
    """No op is made again to find how many rows belong to one example."""
    from keras_dp_ext.gradients import split

    def never(losses):
        raise AssertionError("shapes were inferred")

    monkeypatch.setattr(split, "_infer_shapes", never)
    layers = [TimesTwo(), keras.layers.Dense(3, activation="gelu")]
    model = keras.Sequential([keras.Input([6]), *layers])
    x = np.random.default_rng(0).normal(size=(5, 6)).astype("float32")
    variables = model.trainable_variables

    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def rows_of(x):
        losses = tf.reduce_sum(tf.square(model(x)), axis=1)
        gradients = per_example_gradients(losses, variables)
        return gradients.weighted_sum(tf.one_hot(3, tf.shape(x)[0]))

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(x[3:4])))
    truth = tape.gradient(loss, [variable.value for variable in variables])
    for found, value in zip(rows_of(x), truth, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
