"""The counter of FLOPs and bytes, against programs that can be counted by hand."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.hlo_cost import program_cost


def cost_of(function, *shapes):
    compiled = tf.function(function, jit_compile=True, autograph=False)
    arguments = [tf.zeros(shape) for shape in shapes]
    return program_cost(compiled.experimental_get_compiler_ir(*arguments))


def test_a_product_of_matrices():
    cost = cost_of(lambda x, y: tf.matmul(x, y), [64, 32], [32, 16])
    assert cost.flops == 2 * 64 * 32 * 16
    assert cost.bytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert cost.peak >= cost.bytes


@pytest.mark.parametrize("padding, stride", [("SAME", 1), ("SAME", 2), ("VALID", 1)])
def test_a_convolution_counts_no_padding(padding, stride):
    """A sum of ones over the taps is how many taps there are."""
    shape, kernel = [2, 9, 8, 3], [3, 3, 3, 5]
    taps = tf.nn.conv2d(tf.ones(shape), tf.ones(kernel), stride, padding)
    cost = cost_of(lambda x, w: tf.nn.conv2d(x, w, stride, padding), shape, kernel)
    np.testing.assert_allclose(cost.flops, 2 * np.sum(taps), rtol=1e-6)


def test_a_loop_counts_as_often_as_it_runs():
    def loop(x):
        return tf.while_loop(
            lambda i, x: i < 7,
            lambda i, x: (i + 1, tf.matmul(x, x)),
            (0, x),
            maximum_iterations=7,
        )[1]

    once = cost_of(lambda x: tf.matmul(x, x), [40, 40]).flops
    # Counters are arithmetic, too.
    assert 7 * once <= cost_of(loop, [40, 40]).flops <= 7 * once + 100
    with_gradient = cost_of(lambda x: tf.gradients(loop(x), x)[0], [40, 40]).flops
    assert with_gradient >= 7 * 3 * once


def test_element_by_element():
    cost = cost_of(lambda x, y: tf.sqrt(x) * y, [1000], [1000])
    assert cost.flops == 2000
    assert cost.bytes == 3 * 4000


def test_a_fused_slice_reads_what_it_takes():
    """Not the vector that it is cut out of, as the noise of one variable is."""
    cost = cost_of(lambda x, y: tf.reshape(x, [-1])[500:600] + y, [10, 100], [100])
    assert cost.bytes == 3 * 400


def test_a_scatter_changes_its_places_only():
    def change(x, updates):
        return tf.tensor_scatter_nd_update(x, [[3], [5]], updates)

    # A copy of what must not be changed in place, then two rows.
    cost = cost_of(change, [1000, 10], [2, 10])
    assert 2 * 40_000 <= cost.bytes < 2 * 40_000 + 1_000
