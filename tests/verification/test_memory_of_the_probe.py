"""What the probe takes is given back, and what it has dropped is computed again."""

import gc
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext._compat import tf_internals
from keras_dp_ext.verification import scratch_memory
from keras_dp_ext.verification.graph_function import GraphFunction
from keras_dp_ext.verification.trial import Trial

MEGABYTES = 2**20


STATISTICS = pathlib.Path("/proc/self/statm")


def resident() -> int:
    return 4096 * int(STATISTICS.read_text().split()[1])


@pytest.mark.skipif(
    not STATISTICS.exists(), reason="Only Linux tells what is resident."
)
def test_a_tensor_shares_the_memory_of_its_array_which_is_given_back():
    gc.collect()
    before = resident()
    array = scratch_memory.empty([16, 2**20])
    array[...] = 3.0
    variable = tf.Variable(tf.zeros([1]), shape=tf.TensorShape(None))
    variable.assign(scratch_memory.as_tensor(array))
    assert resident() - before < 80 * MEGABYTES  # Once, not twice.
    assert float(tf.reduce_min(variable)) == 3.0
    del array, variable
    gc.collect()
    assert resident() - before < 16 * MEGABYTES


@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (200, 100)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_are_the_same_numbers(shape, dtype):
    values = np.random.default_rng(0).normal(size=shape).astype(dtype)
    np.testing.assert_array_equal(scratch_memory.copied(values), values)
    drawn = scratch_memory.empty(shape)
    drawn[...] = values
    tensor = scratch_memory.as_tensor(drawn)
    assert tensor.shape == shape
    np.testing.assert_array_equal(tensor, values.astype(np.float32))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_function_may_begin_at_the_result_of_another_one(jit_compile):
    """Of one that XLA compiles, too: encoding's products."""
    found = []

    @tf.function(jit_compile=jit_compile, autograph=False)
    def inner(x):
        return 2.0 * x, x + 1.0

    @tf.function(autograph=False)
    def outer(x):
        middle = inner(x)[0]
        end = tf.square(middle)
        found.append(GraphFunction([middle], [end]))
        return end

    outer(tf.ones([3]))
    function = found[0]
    assert function([tf.constant([3.0])], lambda source: source)[0].numpy() == [9.0]
    assert function([tf.constant([3.0])], lambda source: source, True)[0].numpy() == 9
    function.forget()
    with pytest.raises(tf.errors.NotFoundError):
        tf_internals.function_definition(function.definition.signature.name)


class Functions:
    """Of a model with one weight, whose gradient for row b is b + 1; counts its runs."""

    def __init__(self, wrong=0.0):
        self.runs, self._wrong = 0, wrong

    def draw_scales(self, generator):
        return []

    def gradients(self, data, weights, coefficients, scales, double):
        from keras_dp_ext.verification.probe_functions import GradientResult

        self.runs += 1
        rows = np.arange(1, len(weights) + 1, dtype=np.float32)
        by_rules = np.float32(np.sum(coefficients * weights * rows)) + self._wrong
        return GradientResult(
            [np.square(weights * rows)],
            [[np.full([3], by_rules, np.float32)]],
            [np.full([3], np.sum(weights * rows), np.float32)],
            [],
        )


def test_what_is_dropped_after_the_sums_is_computed_again_and_never_empty():
    functions = Functions()
    trial = Trial(functions, [], 3, 1, np.random.default_rng(0))
    assert trial.is_finite()
    sums, truth = trial.plain().sums[0][0], trial.weighted().truth[0]
    np.testing.assert_allclose(sums, truth, rtol=1e-6)
    row, norms = trial.row_by_rules(), trial.norms_squared()
    assert functions.runs == 2
    trial.keep_only_row()
    assert trial.norms_squared() is norms
    kept = trial.row_by_rules()
    assert (kept is None) == (row is None)
    if row is not None:
        np.testing.assert_array_equal(kept[0], row[0])
    assert functions.runs == 2  # Norms need no other run.
    np.testing.assert_array_equal(trial.plain().sums[0][0], sums)
    np.testing.assert_array_equal(trial.weighted().truth[0], truth)
    assert functions.runs == 4
    assert trial.rounding(0) < 1e-5 * np.abs(truth).max()


def test_the_weights_that_are_drawn_never_change_the_real_ones():
    model = keras.Sequential([keras.Input([300]), keras.layers.Dense(200)])
    model.compile(dp.optimizers.DPSGD(learning_rate=0.0), "mse")
    before = model.get_weights()
    x, y = np.ones([8, 300], np.float32), np.ones([8, 200], np.float32)
    model.fit(x, y, batch_size=8, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
