"""Crosses of features: proven where every example has as many as its columns say."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis import analyse
from tests.third_party.kit import check_fit, numbers, whole

L = keras.layers
BINS = 7


def verdict_of(function, *specs):
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    losses = graph.outputs[0]
    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), losses.shape[0])
    return analyse(losses, sources)


def crossed(x, y):
    return tf.sparse.cross_hashed([x, y], BINS)


def total(crosses):
    return tf.reduce_sum(tf.cast(crosses, tf.float32), axis=1)


def chained(x, y):
    """Of a part that is sparse: how many an example has depends on the data."""
    return tf.sparse.cross_hashed([tf.sparse.from_dense(x), y], BINS)


def wide(sparse, rows, default=0):
    return tf.raw_ops.SparseToDense(
        sparse_indices=sparse.indices,
        output_shape=tf.cast(tf.stack([rows, 9]), tf.int64),
        sparse_values=sparse.values,
        default_value=tf.cast(default, tf.int64),
    )


HONEST = {
    "dense": lambda x, y: total(tf.sparse.to_dense(crossed(x, y))),
    "one_hot": lambda x, y: total(
        tf.reduce_max(tf.one_hot(tf.sparse.to_dense(crossed(x, y)), BINS), axis=2)
    ),
    "a wider shape": lambda x, y: total(wide(crossed(x, y), tf.shape(x)[0])),
}


def _swapped(x, y):
    a, b = crossed(x, y), crossed(y, x)
    values = tf.reverse(b.values, [0])
    return total(tf.sparse.to_dense(tf.SparseTensor(a.indices, values, a.dense_shape)))


def _default_of_others(x, y):
    return total(wide(crossed(x, y), tf.shape(x)[0], tf.reduce_max(y)))


MIXING = {
    "values of others": _swapped,
    "backwards": lambda x, y: total(tf.sparse.to_dense(crossed(tf.reverse(x, [0]), y))),
    "turned": lambda x, y: total(
        tf.transpose(wide(crossed(x, y), tf.shape(x)[0]))[: tf.shape(x)[0]]
    ),
    "a default of all": _default_of_others,
    "summed": lambda x, y: (
        total(x) * tf.cast(tf.reduce_sum(crossed(x, y).values), tf.float32)
    ),
    "sparse parts": lambda x, y: total(tf.sparse.to_dense(chained(x, y))),
}


SPECS = tf.TensorSpec([None, 2], tf.int64), tf.TensorSpec([None, 3], tf.int64)


@pytest.mark.parametrize("name", HONEST)
def test_crosses_of_each_example_are_proven(name):
    verdict = verdict_of(HONEST[name], *SPECS)
    assert verdict.is_proven, list(map(str, verdict.unknown))


@pytest.mark.parametrize("name", MIXING)
def test_crosses_of_others_are_found(name):
    verdict = verdict_of(MIXING[name], *SPECS)
    assert not verdict.is_proven


def test_a_table_that_is_crossed_in_the_model_trains():
    """keras.io's structured data: words and numbers, hashed and crossed."""
    rows = 6

    def build():
        colour = keras.Input((1,), dtype="string")
        size = keras.Input((1,), dtype="int64")
        cross = L.HashedCrossing(BINS, output_mode="one_hot")([colour, size])
        number = L.HashedCrossing(BINS)([L.Hashing(4)(colour), size])
        number = L.Flatten()(L.Embedding(BINS, 3)(number))
        x = L.Concatenate()([cross, number])
        return keras.Model([colour, size], L.Dense(1)(x))

    x = (np.array(["red", "green", "blue"] * 2)[:, None], whole(4, rows, 1))
    check_fit(build, x, numbers(rows, 1), "mse")
