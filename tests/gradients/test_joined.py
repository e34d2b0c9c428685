"""Variables that are joined for a map are those that they were."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import per_example_gradients
from keras_dp_ext.gradients.base import OuterRows, sum_of_mapped
from keras_dp_ext.gradients.joined import JoinedRows

SHAPES = [(3,), (2, 2), (4, 5), (), (7,)]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 9])
def test_what_is_joined_is_split_again(most):
    joined = JoinedRows(SHAPES, most)
    assert 1 <= len(joined.sizes) <= most
    assert sum(joined.sizes) == 35
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(6, *shape)).astype("float32") for shape in SHAPES]
    matrices = joined.join([tf.constant(row) for row in rows])
    assert [matrix.shape for matrix in matrices] == [(6, n) for n in joined.sizes]
    sums = joined.split([tf.reduce_sum(matrix, axis=0) for matrix in matrices])
    for found, row in zip(sums, rows, strict=True):
        np.testing.assert_allclose(found, row.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("bytes_limit", [None, 3000])
def test_a_map_of_joined_rows_sums_to_the_same(is_static, bytes_limit):
    """With several chunks, small variables, and one that the losses do not use."""
    inputs = keras.Input([6, 6, 2])
    x = keras.layers.Conv2D(3, 3, activation="relu")(inputs)
    x = keras.layers.Dense(5)(keras.layers.Flatten()(x))
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    unused = keras.Variable(np.ones([4, 2]))
    variables = [unused, *model.trainable_variables]
    number = 11 if is_static else None

    @tf.function(input_signature=[tf.TensorSpec([number, 6, 6, 2])])
    def sums(x):
        losses = tf.reduce_sum(tf.square(model(x)), axis=1)
        gradients = per_example_gradients(losses, variables)

        def one_by_one(rows):
            top = [tf.reduce_max(tf.abs(r), range(1, r.shape.rank)) for r in rows]
            top = tf.reduce_max(top, axis=0)
            tops = [tf.reshape(top, [-1, *[1] * (r.shape.rank - 1)]) for r in rows]
            return [
                tf.tanh(tf.math.divide_no_nan(*pair))
                for pair in zip(rows, tops, strict=True)
            ]

        return (
            gradients.sum_of(one_by_one, bytes_limit),
            gradients.sum_by(
                functools.partial(sum_of_mapped, one_by_one),
                bytes_limit,
                joined=2,
                products=False,
            ),
        )

    x = np.random.default_rng(0).normal(size=[11, 6, 6, 2]).astype("float32")
    for separate, joined in zip(*sums(x), strict=True):
        assert separate.shape == joined.shape
        np.testing.assert_allclose(separate, joined, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("bytes_limit", [None, 3000])
def test_products_are_given_in_factors(is_static, bytes_limit):
    """Large dense layers, in chunks, with padding and a row that is not finite."""
    inputs = keras.Input([90])
    hidden = keras.layers.Dense(70, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    variables = model.trainable_variables
    number = 11 if is_static else None
    seen = []

    def sum_map(rows):
        seen.append([type(one) for one in rows])
        return [
            tf.reduce_sum(one.built() if isinstance(one, OuterRows) else one, axis=0)
            for one in rows
        ]

    @tf.function(input_signature=[tf.TensorSpec([number, 90])], autograph=False)
    def sums(x):
        gradients = per_example_gradients(
            tf.reduce_sum(tf.square(model(x)), axis=1), variables
        )
        by_factors = gradients.sum_by(sum_map, bytes_limit)
        return by_factors, gradients.sum_of(lambda rows: rows, bytes_limit)

    x = np.random.default_rng(0).normal(size=[11, 90]).astype("float32")
    x[3], x[8] = 0.0, np.nan
    for found, expected in zip(*sums(x), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert all(types.count(OuterRows) == 1 for types in seen)
