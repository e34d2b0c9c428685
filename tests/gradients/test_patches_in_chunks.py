"""Norms of filters for accelerators: chunk by chunk, whatever the batch is."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from benchmarks.hlo_cost import program_cost
from benchmarks.layers import per_example_losses
from keras_dp_ext.gradients import (
    chunks,
    per_example_gradients,
    row_tensors,
)
from keras_dp_ext.gradients.rules.convolution import patch_products
from keras_dp_ext.gradients.rules.device import as_on_a_gpu

ROWS = 7  # No multiple of any chunk.

# By what is smaller: filter or activations; and norms by Gram matrices.
LAYERS = {
    "kept rows": ((8, 9, 2), lambda: layers.Conv2D(3, 3, padding="same")),
    "a second pass": ((4, 4, 8), lambda: layers.Conv2D(9, 3, padding="same")),
    "ghost": ((3, 3, 12), lambda: layers.Conv2D(80, 2)),
    "one dimension": ((12, 4), lambda: layers.Conv1D(6, 5, padding="causal")),
    "transposed": ((4, 4, 6), lambda: layers.Conv2DTranspose(7, 3, strides=2)),
}


@pytest.fixture(autouse=True)
def smallest_chunks():
    chunks.set_chunk_bytes(1)
    yield
    chunks.set_chunk_bytes()


@pytest.fixture
def loops(monkeypatch):
    """How often rows were cut into chunks."""
    found = []
    loop = tf.while_loop

    def counted(*arguments, **keywords):
        found.append(1)
        return loop(*arguments, **keywords)

    monkeypatch.setattr(patch_products.tf, "while_loop", counted)
    return found


def made(name):
    keras.utils.set_random_seed(0)
    shape, layer = LAYERS[name]
    model = keras.Sequential([keras.Input(shape), layer()])
    x = np.random.default_rng(0).normal(size=(ROWS, *shape)).astype("float32")
    return model, x


def rows_of(model, x):
    """By a tape for each example."""
    values = [variable.value for variable in model.trainable_variables]
    rows = []
    for example in range(len(x)):
        with tf.GradientTape() as tape:
            losses = per_example_losses(model(x[example : example + 1]))
        rows.append([g.numpy() for g in tape.gradient(losses, values)])
    return [np.stack(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("jit_compile", [True, False], ids=["xla", "gpu"])
@pytest.mark.parametrize("name", LAYERS)
def test_norms_and_sums_are_those_of_a_tape(name, jit_compile, static, loops):
    model, x = made(name)
    scales = [
        tf.constant(np.linspace(0.5, 2.0, v.shape.num_elements()), tf.float32)
        for v in (v.value for v in model.trainable_variables)
    ]
    weights = np.linspace(-1.0, 2.0, ROWS).astype("float32")

    @tf.function(
        input_signature=[tf.TensorSpec([ROWS if static else None, *x.shape[1:]])],
        jit_compile=jit_compile,
        autograph=False,
    )
    def run(x):
        losses = per_example_losses(model(x))
        gradients = per_example_gradients(losses, model.trainable_variables)
        norms = gradients.norm_squared()
        sums = gradients.weighted_sum(tf.constant(weights))
        shaped = [
            tf.reshape(scale, shape)
            for scale, shape in zip(scales, gradients.shapes, strict=True)
        ]
        return norms, sums, gradients.copy().norm_squared(shaped)

    with contextlib.nullcontext() if jit_compile else as_on_a_gpu():
        norms, sums, scaled = run(x)
    assert loops
    rows = rows_of(model, x)
    flat = [row.reshape(ROWS, -1) for row in rows]
    np.testing.assert_allclose(norms, sum((r**2).sum(1) for r in flat), 1e-4)
    expected = sum(
        (r / s.numpy()) ** 2 @ np.ones(s.shape)
        for r, s in zip(flat, scales, strict=True)
    )
    np.testing.assert_allclose(scaled, expected, 1e-4)
    for total, row in zip(sums, rows, strict=True):
        summed = np.tensordot(weights, row, 1)
        np.testing.assert_allclose(total, summed, 1e-3, 1e-4 * np.abs(summed).max())


@pytest.mark.parametrize("name", ["kept rows", "a second pass"])
def test_a_row_that_is_not_finite_harms_no_other(name, loops):
    model, x = made(name)
    expected = np.tensordot(np.ones(ROWS - 1), rows_of(model, x)[0][1:], 1)
    x[0] = np.nan

    @tf.function(jit_compile=True, autograph=False)
    def run(x):
        losses = per_example_losses(model(x))
        gradients = per_example_gradients(losses, model.trainable_variables)
        gradients.norm_squared()
        return gradients.weighted_sum(tf.ones([ROWS]))

    total = run(tf.constant(x))[0]
    assert loops
    np.testing.assert_allclose(total, expected, 1e-3, 1e-4 * np.abs(expected).max())


def test_an_empty_batch():
    model, x = made("a second pass")

    @tf.function(input_signature=[tf.TensorSpec([None, *x.shape[1:]])])
    def run(x):
        losses = per_example_losses(model(x))
        gradients = per_example_gradients(losses, model.trainable_variables)
        return gradients.weighted_sum(gradients.norm_squared())

    with as_on_a_gpu():
        assert not any(np.any(total) for total in run(x[:0]))


def test_a_chunk_is_cut_out_without_a_copy_of_the_whole():
    """XLA made room for a second tensor of the size of all axes together."""

    def cut(x, start):
        return row_tensors.slice_rows(x, start, 4)

    compiled = tf.function(cut, jit_compile=True, autograph=False)
    arguments = tf.zeros([64, 10, 10]), tf.constant(3)
    cost = program_cost(compiled.experimental_get_compiler_ir(*arguments))
    assert cost.peak < 1.5 * 4 * 64 * 100
