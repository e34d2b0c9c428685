"""What the static analysis proves, and what it must not prove."""

import keras
import pytest
import tensorflow as tf

from benchmarks.layers import CASES, per_example_losses
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis import analyse

FEATURES = 6
BATCHES = pytest.mark.parametrize("batch", [None, 4])


def verdict_of(function, *specs):
    graph = tf.function(function, autograph=False).get_concrete_function(*specs).graph
    losses = graph.outputs[0]
    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), losses.shape[0])
    return analyse(losses, sources)


def mean(x):
    return tf.reduce_mean(x, axis=list(range(1, x.shape.rank)))


@BATCHES
@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_proven(name, batch):
    model = CASES[name].model()
    x = CASES[name].inputs(1)
    verdict = verdict_of(
        lambda x: per_example_losses(model(x, training=True)),
        tf.TensorSpec([batch, *x.shape[1:]], x.dtype),
    )
    assert verdict.is_proven, list(map(str, verdict.unknown))


@tf.custom_gradient
def tanh(x):
    return tf.tanh(x), lambda dy: dy * (1.0 - tf.tanh(x) ** 2)


KERNEL = tf.Variable(tf.ones([FEATURES, FEATURES]))


def gradient_penalty(x):
    hidden = tf.nn.relu(x[:, 1:] @ KERNEL[1:]) ** 2
    (gradient,) = tf.gradients(tf.reduce_sum(hidden, axis=1), x)
    return mean(hidden) + (tf.norm(gradient, axis=1) - 1.0) ** 2


def cropped(x):
    images = tf.reshape(x, [-1, 3, 2, 1])
    number = tf.shape(images)[0]
    boxes = tf.random.uniform([number, 4])
    return mean(tf.image.crop_and_resize(images, boxes, tf.range(number), [2, 2]))


def largest(x):
    return tf.cast(tf.argmax(x, axis=1), tf.int32)


HONEST = {
    "own row by number": lambda x: mean(
        tf.gather_nd(x, tf.stack([tf.range(tf.shape(x)[0]), largest(x)], 1))[:, None]
    ),
    "frames": lambda x: mean(tf.signal.frame(x, 2, 1)),
    "segments of features": lambda x: mean(
        tf.transpose(
            tf.math.unsorted_segment_sum(tf.transpose(x), [0, 0, 1, 1, 2, 2], 3)
        )
    ),
    "gradient penalty": gradient_penalty,
    "crops": cropped,
    "searched": lambda x: mean(tf.cast(tf.searchsorted(tf.sort(x), x), tf.float32)),
    "custom gradient": lambda x: mean(tanh(x)),
    "recomputed": lambda x: mean(tf.recompute_grad(lambda x: x @ KERNEL)(x)),
    "constant condition": lambda x: mean(
        tf.cond(tf.shape(x)[0] > 2, lambda: x, lambda: 2.0 * x)
    ),
    "map_fn with a loop": lambda x: tf.map_fn(
        lambda row: tf.while_loop(
            lambda n, total: total < 5.0,
            lambda n, total: (n + 1, total + tf.abs(row[n % FEATURES]) + 1.0),
            [0, tf.cond(row[0] > 0.0, lambda: 0.0, lambda: row[1])],
        )[1],
        x,
    ),
    "map_fn with a gradient": lambda x: mean(tf.map_fn(tanh, x)),
    "map_fn of map_fn": lambda x: mean(
        tf.map_fn(lambda row: tf.map_fn(tf.square, row), x)
    ),
    "map_fn": lambda x: tf.map_fn(lambda row: tf.reduce_sum(tf.sort(row)), x),
    "vectorized_map": lambda x: tf.vectorized_map(
        lambda row: tf.reduce_sum(tf.sort(row) * tf.reduce_max(row)), x
    ),
    "two views": lambda x: sum(map(mean, tf.split(tf.tanh(tf.concat([x, -x], 0)), 2))),
    "time-major": lambda x: mean(
        tf.transpose(
            tf.reshape(
                tf.reshape(tf.transpose(tf.reshape(x, [-1, 3, 2]), [1, 0, 2]), [-1, 2]),
                [3, -1, 2],
            ),
            [1, 0, 2],
        )
    ),
    "noise": lambda x: mean(x + tf.random.normal(tf.shape(x))),
    "tensordot": lambda x: mean(
        tf.tensordot(tf.reshape(x, [-1, 2, 3]), tf.ones([3, 2]), 1)
    ),
    "outer product": lambda x: mean(tf.einsum("bi,bj->bij", x, x)),
    "per-row norm": lambda x: mean(tf.clip_by_norm(x, 1.0, axes=[-1])),
    "repeated": lambda x: mean(tf.reshape(tf.repeat(x, 3, axis=0), [-1, 3, FEATURES])),
}


@BATCHES
@pytest.mark.parametrize("name", HONEST)
def test_what_treats_every_example_by_itself_is_proven(name, batch):
    verdict = verdict_of(HONEST[name], tf.TensorSpec([batch, FEATURES]))
    assert verdict.is_proven, list(map(str, verdict.unknown))


@tf.custom_gradient
def clipped_backward(x):
    return tf.identity(x), lambda dy: tf.clip_by_norm(dy, 100.0)


@tf.custom_gradient
def skipping_backward(x):
    def gradient(dy):
        is_large = tf.reduce_any(tf.abs(dy) > 1e3)
        return tf.where(is_large, tf.zeros_like(dy), dy)

    return tf.identity(x), gradient


def written_in_reverse(x):
    number = tf.shape(x)[0]
    rows = tf.TensorArray(tf.float32, number).unstack(x)
    results = tf.TensorArray(tf.float32, number)
    *_, results = tf.while_loop(
        lambda n, _: n < number,
        lambda n, results: (n + 1, results.write(number - 1 - n, rows.read(n))),
        (0, results),
    )
    return mean(tf.ensure_shape(results.stack(), x.shape))


def found_in_the_second_round(x):
    """The first time around, `b` is a constant."""
    return mean(
        tf.while_loop(
            lambda n, a, b: n < 3,
            lambda n, a, b: (n + 1, a + 1e-9 * tf.reduce_max(b), a),
            [0, x, tf.zeros_like(x)],
        )[1]
    )


@tf.RegisterGradient("ReversedForTest")
def reversed_gradient(op, upstream):
    return upstream[::-1]


def overridden_gradient(x):
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"Relu": "ReversedForTest"}):
        return mean(tf.nn.relu(x))


LIMIT = tf.Variable(3)


def gradient_of_a_row_uses_all(x):
    @tf.custom_gradient
    def row_function(row):
        def gradient(dy):
            return dy * tf.cast(tf.reduce_max(tf.abs(x)) < 1e3, tf.float32)

        return tf.identity(row), gradient

    return row_function


def count_from_the_second_round(x):
    """Which rows are taken is a constant that counts, but not in the first round."""
    number = tf.shape(x)[0]
    return mean(
        tf.while_loop(
            lambda n, taken, y: n < 2,
            lambda n, taken, y: (n + 1, tf.range(number), tf.gather(y, taken)),
            [0, tf.zeros([number], tf.int32), x],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None, FEATURES]),
            ],
        )[2]
    )


MIXING = {
    "up to an unknown row": lambda x: mean(x[:LIMIT]) + 0.0 * mean(x),
    "from an unknown row": lambda x: mean(tf.concat([x[LIMIT:], x[:LIMIT]], 0)),
    "numbered by another": lambda x: mean(
        tf.gather_nd(x, tf.stack([tf.range(tf.shape(x)[0])[::-1], largest(x)], 1))[
            :, None
        ]
    ),
    "numbered by data": lambda x: mean(
        tf.gather_nd(x, tf.stack([largest(x), largest(x)], 1))[:, None]
    ),
    "written in reverse": written_in_reverse,
    "gradient of a row": lambda x: mean(tf.map_fn(gradient_of_a_row_uses_all(x), x)),
    "gradient of a row, called": lambda x: mean(
        tf.map_fn(tf.function(gradient_of_a_row_uses_all(x)), x)
    ),
    "gradient of a row, in a branch": lambda x: mean(
        tf.map_fn(
            lambda row: tf.cond(
                row[0] > 0.0, lambda: gradient_of_a_row_uses_all(x)(row), lambda: row
            ),
            x,
        )
    ),
    "counting later": count_from_the_second_round,
    "quantised": lambda x: mean(
        tf.quantization.quantize_and_dequantize_v2(x, 0.0, 1.0, range_given=False)
    ),
    "second round": found_in_the_second_round,
    "overridden gradient": overridden_gradient,
    "gradient in a call": lambda x: mean(tf.function(clipped_backward)(x)),
    "clipped backward": lambda x: mean(clipped_backward(x)),
    "skipping backward": lambda x: mean(skipping_backward(x)),
    "tiny mean": lambda x: mean(x + 1e-7 * tf.reduce_mean(x, 0)),
    "condition": lambda x: mean(
        tf.cond(tf.reduce_mean(x) > 1000.0, lambda: 0.0 * x, lambda: x)
    ),
    "loop": lambda x: mean(
        tf.while_loop(lambda x: tf.reduce_max(x) > 1e3, lambda x: [x / 2.0], [x])[0]
    ),
    "reversed": lambda x: mean(x[::-1]),
    "rolled": lambda x: mean(tf.roll(x, 1, axis=0)),
    "first row": lambda x: mean(x - x[:1]),
    "shifted": lambda x: mean(tf.pad(x, [[1, 0], [0, 0]]))[:-1],
    "sorted": lambda x: mean(tf.sort(x, axis=0)),
    "cumulative": lambda x: mean(tf.cumsum(x)),
    "similarities": lambda x: mean(tf.matmul(x, x, transpose_b=True)),
    "all pairs": lambda x: mean(x[:, None] - x[None]),
    "reshaped": lambda x: mean(tf.reshape(tf.transpose(x), tf.shape(x))),
    "pairs of rows": lambda x: mean(
        tf.reshape(tf.sort(tf.reshape(x, [-1, 2 * FEATURES])), [-1, FEATURES])
    ),
    "scan": lambda x: mean(tf.scan(lambda total, row: total + row, x)),
    "shuffled": lambda x: mean(tf.random.shuffle(x)),
    "python": lambda x: tf.ensure_shape(
        tf.py_function(lambda x: tf.reduce_sum(x, 1), [x], tf.float32), [None]
    ),
    "number of large entries": lambda x: (
        mean(x) * tf.cast(tf.size(tf.where(x > 1e3)), tf.float32)
    ),
    "gathered by value": lambda x: mean(
        tf.gather(x, tf.where(x[:, 0] > 1e3, 0, tf.range(tf.shape(x)[0])))
    ),
    "scattered": lambda x: mean(
        tf.tensor_scatter_nd_add(x, [[0]], tf.zeros([1, FEATURES]))
    ),
    "batch normalization": lambda x: mean(
        tf.nn.batch_normalization(x, *tf.nn.moments(x, [0]), 0.0, 1.0, 1e-3)
    ),
}


@BATCHES
@pytest.mark.parametrize("name", MIXING)
def test_what_may_hide_from_experiments_is_found(name, batch):
    verdict = verdict_of(MIXING[name], tf.TensorSpec([batch, FEATURES]))
    assert not verdict.is_proven
    assert verdict.hidden


def test_an_unknown_op_is_left_to_the_probe_but_what_follows_is_read():
    def unknown(x):
        return tf.raw_ops.Betainc(a=x, b=x, x=x)

    def with_unknown(function):
        from keras_dp_ext.verification.row_analysis import registry

        transfer = registry._TRANSFERS.pop("Betainc")
        try:
            return verdict_of(function, tf.TensorSpec([None, FEATURES]))
        finally:
            registry._TRANSFERS["Betainc"] = transfer

    innocent = with_unknown(lambda x: mean(unknown(x)))
    assert not innocent.is_proven and not innocent.hidden
    assert innocent.unknown[0].op.type == "Betainc"
    assert with_unknown(lambda x: mean(unknown(x) * tf.reduce_max(unknown(x)))).hidden


def test_an_input_that_all_examples_share_is_not_proven():
    verdict = verdict_of(
        lambda x, scale: mean(x) * scale,
        tf.TensorSpec([None, FEATURES]),
        tf.TensorSpec([]),
    )
    assert not verdict.is_proven


def test_a_finding_names_the_layer():
    inputs = keras.Input([FEATURES])
    outputs = keras.layers.BatchNormalization(name="the_culprit")(inputs)
    model = keras.Model(inputs, outputs)
    verdict = verdict_of(
        lambda x: mean(model(x, training=True)), tf.TensorSpec([None, FEATURES])
    )
    assert "the_culprit" in verdict.unknown[0].layer
    assert "the_culprit" in str(verdict.unknown[0])
