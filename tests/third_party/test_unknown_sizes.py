"""Images, sounds and series of unknown size or length."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.third_party.kit import (
    assert_updates,
    check_fit,
    clipped_mean,
    loop,
    numbers,
    private,
    whole,
)

L = keras.layers
ROWS = 5
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def strided():
    """A stem as ResNet has it, then strides down to little."""
    image = x = keras.Input((None, None, 3))
    x = L.Conv2D(4, 7, strides=2, activation="relu")(x)
    x = L.MaxPooling2D(3, strides=2)(x)
    x = L.Conv2D(6, 5, strides=2, activation="relu")(x)
    return keras.Model(image, L.Dense(3)(L.GlobalAveragePooling2D()(x)))


def large_kernel():
    image = x = keras.Input((None, None, 3))
    x = L.Conv2D(4, 11, activation="gelu")(x)
    x = L.DepthwiseConv2D(13, padding="valid")(x)
    return keras.Model(image, L.Dense(3)(L.GlobalMaxPooling2D()(x)))


def unet():
    """Three times halved: sides must be multiples of 8."""
    image = x = keras.Input((None, None, 3))
    skips = []
    for width in (4, 6, 8):
        x = L.Conv2D(width, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = L.MaxPooling2D(2)(x)
    for width in (8, 6, 4):
        x = L.Conv2DTranspose(width, 2, strides=2)(x)
        x = L.concatenate([x, skips.pop()])
        x = L.Conv2D(width, 3, padding="same", activation="relu")(x)
    return keras.Model(image, L.Conv2D(3, 1)(x))


def fcn():
    """FCN: a prediction at a third of the size, made large again."""
    image = x = keras.Input((None, None, 3))
    x = L.Conv2D(6, 3, strides=3, activation="relu", padding="same")(x)
    x = L.Conv2D(3, 1)(x)
    return keras.Model(image, L.UpSampling2D(3, interpolation="bilinear")(x))


def resized():
    image = x = keras.Input((None, None, 3))
    x = L.Resizing(8, 8)(x)
    return keras.Model(image, L.Dense(3)(L.Flatten()(x)))


IMAGES = {
    "strided": (strided, 32, 3, ()),
    "large kernel": (large_kernel, 32, 3, ()),
    "U-Net": (unet, 16, 3, (16, 16)),
    "FCN": (fcn, 15, 3, (15, 15)),
    "resized": (resized, 12, 3, ()),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_any_size(name):
    build, side, classes, shape = IMAGES[name]
    y = whole(classes, ROWS, *shape)
    check_fit(build, numbers(ROWS, side, side, 3), y, SPARSE)


def sound():
    wave = x = keras.Input((None, 1))
    x = L.Conv1D(4, 16, strides=4, activation="relu")(x)
    x = L.Conv1D(6, 9, dilation_rate=4, activation="relu")(x)
    return keras.Model(wave, L.Dense(3)(L.GlobalAveragePooling1D()(x)))


def causal():
    wave = x = keras.Input((None, 1))
    for rate in (1, 2, 4):
        y = L.Conv1D(4, 2, padding="causal", dilation_rate=rate, activation="tanh")(x)
        x = L.Conv1D(4, 1)(y) + x
    return keras.Model(wave, L.Dense(3)(L.GlobalMaxPooling1D()(x)))


def conv_and_gru():
    wave = x = keras.Input((None, 1))
    x = L.Conv1D(4, 8, strides=4)(x)
    return keras.Model(wave, L.Dense(3)(L.GRU(5)(x)))


@pytest.mark.parametrize("build", [sound, causal, conv_and_gru])
def test_sounds_of_any_length(build):
    check_fit(build, numbers(ROWS, 160, 1), whole(3, ROWS), SPARSE)


def test_volumes_of_any_size():
    def build():
        volume = x = keras.Input((None, None, None, 1))
        x = L.Conv3D(3, 5, strides=2, activation="relu")(x)
        return keras.Model(volume, L.Dense(3)(L.GlobalAveragePooling3D()(x)))

    check_fit(build, numbers(ROWS, 9, 9, 9, 1), whole(3, ROWS), SPARSE)


class OwnCell(L.Layer):
    """A cell as in keras.io's guide to recurrent layers."""

    state_size = 4

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel")
        self.recurrent = self.add_weight(shape=(4, 4), name="recurrent")

    def call(self, x, states):
        state = keras.ops.tanh(x @ self.kernel + states[0] @ self.recurrent)
        return state, [state]


RECURRENT = {
    "GRU": lambda: [L.GRU(4)],
    "LSTM, stacked": lambda: [L.LSTM(4, return_sequences=True), L.LSTM(3)],
    "bidirectional": lambda: [L.Bidirectional(L.GRU(3))],
    "bidirectional, stacked": lambda: [
        L.Bidirectional(L.LSTM(3, return_sequences=True)),
        L.Bidirectional(L.LSTM(2)),
    ],
    "SimpleRNN, backwards": lambda: [L.SimpleRNN(4, go_backwards=True)],
    "a cell of one's own": lambda: [L.RNN(OwnCell())],
    "dense at each time": lambda: [
        L.Dense(4, activation="relu"),
        L.LSTM(3, return_sequences=True),
        L.Dense(2),
        L.GlobalAveragePooling1D(),
    ],
}


@pytest.mark.parametrize("shape", [(9, 3), (None, 3)], ids=["known", "unknown"])
@pytest.mark.parametrize("name", RECURRENT)
def test_windows_of_a_series_by_their_rule(name, shape, recwarn):
    """`timeseries_dataset_from_array` does not say how long its windows are."""
    series = numbers(60, 3)
    dataset = keras.utils.timeseries_dataset_from_array(
        series[:-9], series[9:, :1], sequence_length=9, batch_size=8, end_index=15
    )
    x, y = next(iter(dataset))
    rows = len(x)
    assert x.shape == (7, 9, 3) and dataset.element_spec[0].shape[1] is None

    def build():
        layers = RECURRENT[name]()
        return keras.Sequential([keras.Input(shape), *layers, L.Dense(1)])

    honest, model = build(), build()
    honest.compile("sgd", "mse")
    model.set_weights(honest.get_weights())
    expected, clip = clipped_mean(loop(honest, x.numpy(), y.numpy()))
    former = [np.array(w, float) for w in model.get_weights()]
    model.compile(private(rows, clip), "mse", jit_compile=False)
    model.fit(dataset, verbose=0)
    assert not [w for w in recwarn if "No fast per-example" in str(w.message)]
    assert_updates(model.trainable_variables, former, expected)


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
def test_frames_of_a_video(static):
    """keras.io's next frame: Conv3D behind a loop, which hides where the batch is."""

    def build():
        inputs = keras.Input((4, 6, 6, 1))
        x = L.ConvLSTM2D(2, 3, padding="same", return_sequences=True)(inputs)
        return keras.Model(inputs, L.Conv3D(1, 3, padding="same")(x))

    x, y = numbers(ROWS, 4, 6, 6, 1), numbers(ROWS, 4, 6, 6, 1, seed=1)
    check_fit(build, x, y, "mse", static=static)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_road_of_an_example_has_a_series(jit_compile):
    """keras.io's forecast of traffic: an LSTM on `[batch * roads, time, ...]`."""

    def build():
        inputs = keras.Input((6, 4))
        x = keras.ops.transpose(L.Dense(3)(inputs[..., None]), (0, 2, 1, 3))
        x = L.LSTM(5)(keras.ops.reshape(x, (-1, 6, 3)))
        x = keras.ops.reshape(L.Dense(2)(x), (-1, 4, 2))
        return keras.Model(inputs, x)

    x, y = numbers(ROWS, 6, 4), numbers(ROWS, 4, 2, seed=1)
    check_fit(build, x, y, "mse", jit_compile=jit_compile)


@pytest.mark.parametrize("is_told", [False, True], ids=["unknown", "told"])
def test_time_distributed_behind_a_recurrent_layer_trains_as_in_plain_keras(is_told):
    """Keras 3.15 takes the batch size for an unknown number of steps there."""
    series = numbers(60, 3)
    dataset = keras.utils.timeseries_dataset_from_array(
        series[:-9], series[9:, :1], sequence_length=9, batch_size=8, end_index=15
    )
    x, y = next(iter(dataset))
    shape = [None, 9 if is_told else None, 3]
    dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, shape), y))

    def build():
        return keras.Sequential(
            [
                keras.Input((None, 3)),
                L.LSTM(3, return_sequences=True),
                L.TimeDistributed(L.Dense(2)),
                L.GlobalAveragePooling1D(),
                L.Dense(1),
            ]
        )

    honest, model = build(), build()
    model.set_weights(honest.get_weights())
    variables = [weight.value for weight in honest.trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec(shape), tf.TensorSpec([None, 1])])
    def gradients(x, y):
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(honest(x) - y), axis=1)
        return tape.jacobian(losses, variables, experimental_use_pfor=False)

    truth = [np.asarray(value, float) for value in gradients(x, y)]
    expected, clip = clipped_mean(truth)
    former = [np.array(weight, float) for weight in model.get_weights()]
    model.compile(private(len(x), clip), "mse", jit_compile=False)
    model.fit(dataset, verbose=0)
    assert_updates(model.trainable_variables, former, expected)
