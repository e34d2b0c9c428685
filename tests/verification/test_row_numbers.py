"""Scatters: proven where every index begins with the number of its own example."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis import analyse

FEATURES = 6
BATCHES = pytest.mark.parametrize("batch", [None, 4])


def verdict_of(function, *specs):
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    losses = graph.outputs[0]
    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), losses.shape[0])
    return analyse(losses, sources)


def scattered(x, index):
    """Updates `[batch, 2]` to places `[batch, 2, 2]` of a tensor `[batch, features]`."""
    made = tf.scatter_nd(index, x[:, :2], [tf.shape(x)[0], FEATURES])
    return tf.reduce_sum(made * tf.range(1.0, FEATURES + 1.0), axis=1)


def numbers(x):
    return tf.range(tf.shape(x)[0])


def index_of(x, rows, places=(1, 3)):
    """`[row, place]` for each example and update, as TensorFlow's CTC loss makes it."""
    zeros = tf.zeros_like(tf.constant(places))
    first = tf.expand_dims(tf.stack([zeros, places], 1), 0)
    first = tf.tile(first, [tf.shape(x)[0], 1, 1])
    return first + tf.expand_dims(tf.expand_dims(rows, 1) * [1, 0], 1)


def in_time(x):
    """Steps of all examples get to public places of `[time, batch]`."""
    target = tf.zeros([3, tf.shape(x)[0]])
    steps = tf.transpose(x)[:2]
    return tf.reduce_sum(tf.tensor_scatter_nd_add(target, [[2], [0]], steps), axis=0)


HONEST = {
    "own row": lambda x: scattered(x, index_of(x, numbers(x))),
    "own row, chosen by data": lambda x: tf.reduce_sum(
        tf.tensor_scatter_nd_update(
            x,
            tf.stack([numbers(x), tf.cast(tf.argmax(x, 1), tf.int32)], 1),
            x[:, 0],
        ),
        axis=1,
    ),
    "places in time": in_time,
}

MIXING = {
    "backwards": lambda x: scattered(x, index_of(x, numbers(x)[::-1])),
    "halved": lambda x: scattered(x, index_of(x, numbers(x) // 2)),
    "shifted": lambda x: scattered(x, index_of(x, (numbers(x) + 1) % tf.shape(x)[0])),
    "doubled": lambda x: scattered(
        x, index_of(x, numbers(x) * 2 % tf.maximum(tf.shape(x)[0], 1))
    ),
    "one row for all": lambda x: scattered(x, index_of(x, numbers(x) * 0)),
    "wrapped around": lambda x: scattered(
        x, index_of(x, tf.cast(tf.cast(numbers(x), tf.uint8), tf.int32))
    ),
    "numbers in the second place": lambda x: scattered(
        x, index_of(x, numbers(x))[..., ::-1]
    ),
    "twice the number": lambda x: scattered(
        x, index_of(x, numbers(x)) + index_of(x, numbers(x)) * [1, 0]
    ),
    "along the wrong axis": lambda x: tf.reduce_sum(
        tf.scatter_nd(
            tf.tile(
                tf.expand_dims(tf.stack([numbers(x)] * 2, 1), 0), [tf.shape(x)[0], 1, 1]
            ),
            tf.tile(x[:, :1], [1, tf.shape(x)[0]]),
            [tf.shape(x)[0], tf.shape(x)[0]],
        ),
        axis=1,
    ),
    "by data": lambda x: scattered(
        x, index_of(x, tf.cast(tf.argmax(x, axis=1), tf.int32))
    ),
    "updates of others": lambda x: scattered(
        tf.reverse(x, [0]), index_of(x, numbers(x))
    ),
    "public rows": lambda x: tf.reduce_sum(
        tf.tensor_scatter_nd_update(x, [[1], [0]], x[:2]), axis=1
    ),
    "a public row": lambda x: tf.reduce_sum(
        tf.tensor_scatter_nd_add(x, [[0]], tf.reduce_sum(x, 0, keepdims=True)), axis=1
    ),
}


@BATCHES
@pytest.mark.parametrize("name", HONEST)
def test_own_rows_are_proven(name, batch):
    verdict = verdict_of(HONEST[name], tf.TensorSpec([batch, FEATURES]))
    assert verdict.is_proven, list(map(str, verdict.unknown))


@BATCHES
@pytest.mark.parametrize("name", MIXING)
def test_rows_of_others_are_found(name, batch):
    verdict = verdict_of(MIXING[name], tf.TensorSpec([batch, FEATURES]))
    assert not verdict.is_proven
    assert verdict.hidden


@BATCHES
@pytest.mark.parametrize("length", [None, 5])
def test_the_ctc_loss_is_proven(batch, length):
    verdict = verdict_of(
        lambda y, x: keras.losses.CTC(reduction=None)(y, x),
        tf.TensorSpec([batch, length], tf.int32),
        tf.TensorSpec([batch, 12, 7]),
    )
    assert verdict.is_proven, list(map(str, verdict.unknown))


@pytest.mark.parametrize("sabotage", ["states", "outputs"])
def test_a_ctc_loss_of_mixed_examples_is_not(sabotage):
    """What reaches the loop in the style of TensorFlow 1, or leaves it."""

    def loss(y, x):
        if sabotage == "states":
            x = x - 1e-9 * tf.reduce_max(x, axis=0)
        losses = keras.losses.CTC(reduction=None)(y, x)
        return losses if sabotage == "states" else losses * tf.reduce_max(losses)

    specs = tf.TensorSpec([None, 5], tf.int32), tf.TensorSpec([None, 12, 7])
    assert verdict_of(loss, *specs).hidden


def test_the_ctc_loss_trains_with_fit_and_a_rest(rng):
    import keras_dp_ext as dp

    model = keras.Sequential([keras.Input((12, 4)), keras.layers.Dense(6)])
    model.compile(dp.DPSGD(learning_rate=0.1), loss=keras.losses.CTC())
    x, y = rng.normal(size=(11, 12, 4)), rng.integers(1, 6, (11, 3))
    history = model.fit(x, y, batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
