"""Every layer's per-example gradients are those of an ordinary tape per example."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.layers import CASES, per_example_losses
from keras_dp_ext.gradients import per_example_gradients

ROWS = 3

# For these an exact but slow way is expected; everything else has a rule.
WITHOUT_RULE = set()


def true_rows(model, x, group):
    """`[rows, *shape]` for each variable, by one tape for each microbatch."""
    variables = model.trainable_variables
    rows = []
    for start in range(0, len(x), group):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(per_example_losses(model(x[start : start + group])))
        gradients = tape.gradient(loss, [v.value for v in variables])
        rows.append([tf.convert_to_tensor(g).numpy() for g in gradients])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def scale_of(variable):
    size = np.arange(np.prod(variable.shape), dtype=np.float32)
    return np.reshape(1.5 + np.sin(size), variable.shape)


def engine_results(model, x, group, jit_compile, static):
    variables = model.trainable_variables
    scales = [tf.constant(scale_of(variable)) for variable in variables]
    shape = list(x.shape) if static else [None, *x.shape[1:]]

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec(shape, x.dtype), tf.TensorSpec([None])],
        autograph=False,
    )
    def run(x, coefficients):
        losses = per_example_losses(model(x))
        if static:
            losses = tf.ensure_shape(losses, [shape[0]])
        gradients = per_example_gradients(losses, variables, group)
        return (
            gradients.norm_squared(),
            gradients.norm_squared(scales),
            gradients.weighted_sum(coefficients),
            gradients.copy().weighted_sum(coefficients),
            # Two rows at a time, so that a chunk overlaps the one before.
            gradients.copy().sum_of(
                lambda rows: [tf.tanh(row) for row in rows],
                bytes_limit=8 * sum(int(np.prod(v.shape)) for v in variables),
            ),
        )

    coefficients = np.linspace(0.5, 1.5, len(x) // group).astype(np.float32)
    return coefficients, run(tf.constant(x), coefficients)


def check(name, group=1, jit_compile=False, static=False):
    keras.utils.set_random_seed(3)
    case = CASES[name]
    model = case.model()
    x = case.inputs(ROWS * group)
    truth = true_rows(model, x, group)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        coefficients, results = engine_results(model, x, group, jit_compile, static)
    slow = [w for w in caught if "No fast per-example" in str(w.message)]
    assert bool(slow) == (name in WITHOUT_RULE), [str(w.message) for w in slow]
    norms, scaled_norms, sums, fresh_sums, tanh_sums = results

    def flat(rows):
        return rows.reshape(len(rows), -1).astype(np.float64)

    expected = sum(np.sum(flat(rows) ** 2, axis=1) for rows in truth)
    np.testing.assert_allclose(norms, expected, rtol=1e-4)
    expected = sum(
        np.sum((flat(rows) / scale_of(variable).reshape(-1)) ** 2, axis=1)
        for rows, variable in zip(truth, model.trainable_variables, strict=True)
    )
    np.testing.assert_allclose(scaled_norms, expected, rtol=1e-4)
    largest = max(np.abs(rows).max() for rows in truth)
    for rows, *computed in zip(truth, sums, fresh_sums, strict=True):
        expected = np.tensordot(coefficients, rows, 1)
        for value in computed:
            np.testing.assert_allclose(value, expected, 1e-4, 1e-5 * largest)
    for rows, computed in zip(truth, tanh_sums, strict=True):
        np.testing.assert_allclose(computed, np.tanh(rows).sum(0), 1e-4, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_a_tape_for_each_example(name):
    check(name)


GROUPED = [
    "Conv2D, groups",
    "Conv2D, strides",
    "Dense on sequences",
    "DepthwiseConv2D",
    "EinsumDense, shared axis",
    "Embedding",
    "LSTM",
    "MultiHeadAttention",
    "PReLU",
]


@pytest.mark.parametrize("name", GROUPED)
def test_microbatches_of_several_examples_are_averaged(name):
    check(name, group=2)


@pytest.mark.parametrize("name", GROUPED)
def test_a_batch_of_static_size_gives_the_same(name):
    check(name, static=True)


@pytest.mark.parametrize(
    "name",
    [
        "Conv1D, causal, dilated",
        "Conv2D, strides",
        "Conv2DTranspose",
        "DepthwiseConv2D",
        "Embedding",
        "MultiHeadAttention",
        "PReLU",
    ],
)
def test_xla_gives_the_same(name):
    check(name, jit_compile=True, static=True)


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_xla_gives_the_same_for_every_layer(name, static):
    check(name, jit_compile=True, static=static)


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_every_layer_with_microbatches(name, static):
    check(name, group=2, static=static)
