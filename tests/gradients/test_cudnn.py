"""cuDNN's kernel for recurrent layers, in graphs that are traced and never run."""

import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras.src.backend.tensorflow import cudnn_ok

import keras_dp_ext as dp
from keras_dp_ext.gradients import per_example_gradients
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.cudnn import CUDNN_OPS, without_cudnn

ROWS, STEPS, FEATURES = 5, 6, 4


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Keras traces what it would trace if there was a GPU."""
    if not tf.sysconfig.get_build_info()["is_cuda_build"]:
        pytest.skip("This TensorFlow was built without CUDA.")
    keras_rnn = sys.modules[cudnn_ok.__module__]
    monkeypatch.setattr(keras_rnn, "_is_gpu_available", lambda: True)


def model_of(*stack):
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [keras.Input((STEPS, FEATURES)), *stack, layers.Flatten(), layers.Dense(2)]
    )


STACKS = {
    "LSTM": lambda: [layers.LSTM(3)],
    "GRU": lambda: [layers.GRU(3)],
    "all outputs, then the last": lambda: [
        layers.LSTM(3, return_sequences=True),
        layers.GRU(2),
    ],
    "backwards": lambda: [layers.Bidirectional(layers.LSTM(3))],
    "masked": lambda: [layers.Masking(), layers.LSTM(3)],
    "masked, backwards": lambda: [
        layers.Masking(),
        layers.GRU(3, return_sequences=True, go_backwards=True),
    ],
}


def inputs():
    x = np.random.default_rng(0).normal(size=(ROWS, STEPS, FEATURES)).astype("float32")
    x[::2, 4:] = 0.0
    return x


def losses_of(model, x):
    return tf.reduce_sum(tf.square(model(x) - 1.0), axis=1)


def traced(model, fetch):
    """A function of what `fetch` makes of the losses; the kernel itself never runs."""
    found = []

    def trace(x):
        losses = losses_of(model, x)
        found.append({op.type for op in graph_lib.ancestors([losses])} & CUDNN_OPS)
        return fetch(losses)

    wrapped = tf.compat.v1.wrap_function(
        trace, [tf.TensorSpec([None, STEPS, FEATURES])]
    )
    assert found == [{"CudnnRNNV3"}]
    return wrapped.prune(wrapped.inputs[0], wrapped.structured_outputs)


@pytest.mark.parametrize("name", STACKS)
def test_losses_and_gradients_are_those_of_the_layers_own_loop(name, as_on_a_gpu):
    model = model_of(*STACKS[name]())
    variables = model.trainable_variables

    def fetch(losses):
        with pytest.warns(UserWarning, match="use_cudnn=False"):
            losses = without_cudnn(losses)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "No fast per-example")
            gradients = per_example_gradients(losses, variables)
        return losses, gradients.norm_squared()

    losses, norms = traced(model, fetch)(tf.constant(inputs()))
    for layer in model._flatten_layers():
        if hasattr(layer, "use_cudnn"):
            layer.use_cudnn = False
    for row, x in enumerate(inputs()):
        with tf.GradientTape() as tape:
            loss = losses_of(model, x[np.newaxis])
        gradients = tape.gradient(loss, [v.value for v in variables])
        np.testing.assert_allclose(losses[row], loss[0], 1e-5)
        expected = sum(tf.reduce_sum(tf.square(g)) for g in gradients)
        np.testing.assert_allclose(norms[row], expected, 1e-4)


def test_a_training_step_is_traced_by_its_rule_and_says_so(as_on_a_gpu):
    model = model_of(layers.LSTM(3))
    model.compile(dp.optimizers.DPSGD(expected_batch_size=ROWS), "mse")
    assert not model.jit_compile  # Keras does not compile cuDNN's kernels.
    model.optimizer.build(model.trainable_variables)
    model.optimizer.bind(model)
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "No fast per-example")
        with pytest.warns(UserWarning, match="use_cudnn=False"):
            step.get_concrete_function(inputs(), np.zeros([ROWS, 2], "float32"))


def test_what_has_no_cudnn_kernel_stays_as_it_is():
    model = model_of(layers.LSTM(3))

    @tf.function(autograph=False)
    def check(x):
        losses = losses_of(model, x)
        assert without_cudnn(losses) is losses
        return losses

    check(inputs())
