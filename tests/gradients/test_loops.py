"""Weights inside loops: by their rule, on both paths, whatever the length is."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_dp_ext as dp
from keras_dp_ext.gradients import per_example_gradients
from keras_dp_ext.gradients.graph.loops import unfold_loops

CLIP = 0.3


class GatedCell(keras.layers.Layer):
    """A cell that nobody has foreseen: a weight that scales the former state."""

    def __init__(self, units):
        super().__init__()
        self.units = self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))
        self.recurrent = self.add_weight(shape=(self.units, self.units))
        self.gate = self.add_weight(shape=(self.units,), initializer="ones")

    def call(self, x, states):
        new = ops.matmul(x, self.kernel) + self.gate * ops.matmul(
            states[0], self.recurrent
        )
        return ops.tanh(new), [ops.tanh(new)]


class AddingCell(GatedCell):
    """Sums of which some have the gradient of their operands, and some have not."""

    def call(self, x, states):
        seen = ops.matmul(x, self.kernel)
        # Added to itself, used once more, and a row that all positions share.
        new = seen + seen + ops.matmul(states[0], self.recurrent) + self.gate
        state = ops.tanh(new) + 0.1 * new
        shared = ops.mean(ops.matmul(x, self.kernel), axis=1, keepdims=True)
        return state + shared, [state]


class Repeated(keras.layers.Layer):
    """Applies one layer several times, in a loop that the user wrote."""

    def __init__(self, layer, loop):
        super().__init__()
        self.layer, self.loop = layer, loop

    def build(self, shape):
        self.layer.build(shape)

    def call(self, x):
        return self.loop(lambda value: ops.tanh(self.layer(value)), x)


def fori_loop(step, x):
    return ops.fori_loop(0, 3, lambda index, value: step(value), x)


def while_loop(step, x):
    def body(index, value):
        return index + 2, step(value)

    return ops.while_loop(lambda index, value: index < 5, body, (0, x))[1]


def bounded_while_loop(step, x):
    """Stops before its bound."""

    def body(index, value):
        return index + 1, step(value)

    return ops.while_loop(
        lambda index, value: index < 3, body, (0, x), maximum_iterations=9
    )[1]


def scan(step, x):
    return ops.scan(lambda state, _: (step(state), state), x, length=3)[0]


def growing(step, x):
    """What is added in each step depends on its number."""
    return ops.fori_loop(
        0, 3, lambda index, value: step(value) * ops.cast(index + 1, "float32"), x
    )


def sequence(*stack, shape=(7, 5)):
    def build():
        return keras.Sequential(
            [keras.Input(shape), *(make() for make in stack), layers.Dense(4)]
        )

    return build


MODELS = {
    "LSTM": sequence(lambda: layers.LSTM(6)),
    "GRU": sequence(lambda: layers.GRU(6)),
    "GRU, reset before": sequence(lambda: layers.GRU(6, reset_after=False)),
    "SimpleRNN": sequence(lambda: layers.SimpleRNN(6)),
    "bidirectional": sequence(lambda: layers.Bidirectional(layers.GRU(3))),
    "stacked": sequence(
        lambda: layers.LSTM(6, return_sequences=True), lambda: layers.GRU(3)
    ),
    "masked": sequence(layers.Masking, lambda: layers.LSTM(6)),
    "all outputs": sequence(
        lambda: layers.LSTM(6, return_sequences=True), layers.Flatten
    ),
    "backwards": sequence(lambda: layers.LSTM(6, go_backwards=True)),
    "custom cell": sequence(lambda: layers.RNN(GatedCell(6))),
    "adding cell": sequence(lambda: layers.RNN(AddingCell(6))),
    "two cells": sequence(lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(4)])),
    "ConvLSTM1D": sequence(
        lambda: layers.ConvLSTM1D(3, 3), layers.Flatten, shape=(4, 5, 2)
    ),
    "ConvLSTM2D": sequence(
        lambda: layers.ConvLSTM2D(2, 3), layers.Flatten, shape=(3, 4, 5, 2)
    ),
    "Conv3D behind ConvLSTM2D": sequence(
        lambda: layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True),
        lambda: layers.Conv3D(2, 3),
        layers.Flatten,
        shape=(3, 4, 5, 2),
    ),
    "fori_loop": sequence(lambda: Repeated(layers.Dense(5), fori_loop), shape=(5,)),
    "while_loop": sequence(lambda: Repeated(layers.Dense(5), while_loop), shape=(5,)),
    "bounded while_loop": sequence(
        lambda: Repeated(layers.Dense(5), bounded_while_loop), shape=(5,)
    ),
    "scan": sequence(lambda: Repeated(layers.Dense(5), scan), shape=(5,)),
    "growing": sequence(lambda: Repeated(layers.Dense(5), growing), shape=(5,)),
    "positions inside": sequence(
        lambda: Repeated(layers.Dense(5), fori_loop), layers.Flatten, shape=(3, 5)
    ),
    "convolution inside": sequence(
        lambda: Repeated(layers.Conv2D(2, 3, padding="same"), fori_loop),
        layers.Flatten,
        shape=(4, 5, 2),
    ),
    "unknown length": sequence(lambda: layers.LSTM(6), shape=(None, 5)),
    "unknown length, GRU": sequence(lambda: layers.GRU(6), shape=(None, 5)),
    "unknown length, masked": sequence(
        layers.Masking, lambda: layers.Bidirectional(layers.LSTM(3)), shape=(None, 5)
    ),
}
IN_SHORT = [
    ("LSTM", True),
    ("masked", True),
    ("adding cell", True),
    ("Conv3D behind ConvLSTM2D", False),
    ("unknown length", False),
    ("unknown length", True),
    ("fori_loop", False),
    # Plain Keras cannot: its loop has no bound, and this one's is counted.
    ("fori_loop", True),
]


def data(model, rows):
    generator = np.random.default_rng(0)
    shape = [7 if size is None else size for size in model.input_shape[1:]]
    x = generator.normal(size=(rows, *shape)).astype("float32")
    if len(shape) == 2:
        x[::2, 5:] = 0.0  # What a mask leaves out.
    return x, generator.integers(0, 4, rows)


def clipped_sums(model, loss, x, y):
    """By one tape for each example."""
    values = [variable.value for variable in model.trainable_variables]
    total = [np.zeros(value.shape) for value in values]
    for row in range(len(x)):
        with tf.GradientTape() as tape:
            value = loss(y[row : row + 1], model(x[row : row + 1], training=True))
        gradients = [
            tf.convert_to_tensor(g).numpy() for g in tape.gradient(value, values)
        ]
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=float)) for g in gradients))
        for sum_, gradient in zip(total, gradients, strict=True):
            sum_ += gradient * min(1.0, CLIP / norm)
    return total


def check(name, jit_compile, static):
    """One step of `fit` moves the weights by the clipped sum."""
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    rows = 6
    x, y = data(model, rows)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = clipped_sums(model, loss, x, y)
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0,
        l2_norm_clip=CLIP,
        noise_multiplier=1e-9,
        expected_batch_size=rows,
    )
    model.compile(optimizer, loss, jit_compile=jit_compile)
    shapes = [rows if static else None, *model.input_shape[1:]]
    batches = tf.data.Dataset.from_tensors((x, y)).map(
        lambda x, y: (
            tf.compat.v1.placeholder_with_default(x, shapes),
            tf.compat.v1.placeholder_with_default(y, shapes[:1]),
        )
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "No fast per-example")
        model.fit(batches, verbose=0)
    largest = max(np.abs(total).max() for total in expected)
    for old, new, total in zip(
        before, model.trainable_variables, expected, strict=True
    ):
        np.testing.assert_allclose((old - new) * rows, total, 1e-4, 1e-5 * largest)


@pytest.mark.parametrize("name, jit_compile", IN_SHORT)
def test_a_step_is_that_of_a_tape_for_each_example(name, jit_compile):
    check(name, jit_compile, static=False)


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("name", MODELS)
def test_every_loop(name, jit_compile, static):
    if jit_compile and not static and name == "positions inside":
        pytest.skip("Plain Keras cannot, either: XLA asks for a static transpose.")
    check(name, jit_compile, static)


def test_windows_of_a_time_series_have_their_rule():
    """The pipeline of Keras forgets the length that the model's input states."""
    windows = keras.utils.timeseries_dataset_from_array(
        np.random.default_rng(0).normal(size=(60, 4)).astype("float32"),
        np.arange(60.0, dtype="float32"),
        sequence_length=6,
        batch_size=16,
    )
    assert windows.element_spec[0].shape.as_list() == [None, None, 4]
    model = keras.Sequential([keras.Input((6, 4)), layers.LSTM(3), layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(expected_batch_size=16), "mse")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "No fast per-example")
        model.fit(windows, verbose=0)


def test_a_number_of_steps_that_depends_on_the_data_has_no_rule():
    """The steps of one example would be those of the batch's hungriest."""
    layer = layers.Dense(3)
    layer.build((None, 3))

    def step(index, value):
        return index + 1, ops.tanh(layer(value))

    @tf.function(autograph=False)
    def norms(x):
        steps = ops.cast(ops.max(x), "int32")
        _, value = ops.while_loop(lambda i, _: i < steps, step, (0, x))
        losses = tf.reduce_sum(value, axis=1)
        return per_example_gradients(losses, layer.trainable_variables).norm_squared()

    with pytest.warns(UserWarning, match="No fast per-example"):
        norms(tf.constant([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize("batch", [None, 3])
def test_outputs_that_are_added_up_share_a_tap(batch):
    """Their gradients are one tensor, which would be kept three times."""
    layer = layers.LSTM(4)
    layer.build((batch, 5, 2))

    @tf.function(autograph=False)
    def trace(x):
        losses = tf.reduce_sum(layer(x), axis=1)
        taps = unfold_loops(losses, layer.trainable_variables).taps
        counts.append((len(taps), len({id(tap.perturbation) for tap in taps})))
        return losses

    counts = []
    trace.get_concrete_function(tf.TensorSpec([batch, 5, 2]))
    assert counts == [(3, 1)]
