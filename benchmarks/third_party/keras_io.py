"""Models in the style of keras.io's examples, written anew and small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import (
    BATCH,
    Case,
    Training,
    cross_entropy,
    generator,
    labels,
    numbers,
    tokens,
)

_WORDS, _LENGTH = 60, 16
_IMAGE = (16, 16, 3)


def keras_modules():
    import keras

    return keras, keras.layers, keras.ops


def classification(model, x, classes: int = 4) -> Training:
    return Training(model, x, labels(classes), cross_entropy())


def mnist_convnet() -> Training:
    keras, layers, _ = keras_modules()
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    return Training(
        model, numbers(28, 28, 1), np.eye(10)[labels(10)], "categorical_crossentropy"
    )


def text_convnet() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(_WORDS, 16)(inputs)
    x = layers.Conv1D(16, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.GlobalMaxPooling1D()(x)
    outputs = layers.Dense(1, activation="sigmoid")(layers.Dense(16, "relu")(x))
    model = keras.Model(inputs, outputs)
    return Training(
        model, tokens(_WORDS, 30), labels(2)[:, None], "binary_crossentropy"
    )


def bidirectional_lstm() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(_WORDS, 16)(inputs)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(8))(x)
    return classification(
        keras.Model(inputs, layers.Dense(4)(x)), tokens(_WORDS, _LENGTH)
    )


def _positions(layers, ops, x, length: int, width: int):
    return x + layers.Embedding(length, width)(ops.arange(length))


def encoder_block(layers, x, width: int, heads: int = 2, **attention):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, **attention)
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    return x + layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(y))


def text_transformer() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input((_LENGTH,), dtype="int32")
    x = _positions(layers, ops, layers.Embedding(_WORDS, 16)(inputs), _LENGTH, 16)
    x = layers.GlobalAveragePooling1D()(encoder_block(layers, x, 16))
    return classification(
        keras.Model(inputs, layers.Dense(4)(x)), tokens(_WORDS, _LENGTH)
    )


def miniature_gpt() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input((_LENGTH,), dtype="int32")
    x = _positions(layers, ops, layers.Embedding(_WORDS, 16)(inputs), _LENGTH, 16)
    x = encoder_block(layers, x, 16, use_causal_mask=True)
    model = keras.Model(inputs, layers.Dense(_WORDS)(x))
    return Training(
        model, tokens(_WORDS, _LENGTH), labels(_WORDS, _LENGTH), cross_entropy()
    )


def named_entities() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((_LENGTH,), dtype="int32")
    x = layers.Embedding(_WORDS, 16, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.GRU(8, return_sequences=True))(x)
    model = keras.Model(inputs, layers.TimeDistributed(layers.Dense(5))(x))
    y = labels(5, _LENGTH)
    return Training(model, tokens(_WORDS, _LENGTH), y, cross_entropy("sum"))


def addition_lstm() -> Training:
    keras, layers, _ = keras_modules()
    model = keras.Sequential(
        [
            keras.Input((7, 12)),
            layers.LSTM(16),
            layers.RepeatVector(4),
            layers.LSTM(16, return_sequences=True),
            layers.Dense(12, activation="softmax"),
        ]
    )
    y = np.eye(12)[labels(12, 4)]
    return Training(model, numbers(7, 12), y, "categorical_crossentropy")


def translation_transformer() -> Training:
    keras, layers, ops = keras_modules()
    source = keras.Input((_LENGTH,), dtype="int32", name="source")
    target = keras.Input((_LENGTH,), dtype="int32", name="target")
    embedding = layers.Embedding(_WORDS, 16)
    encoded = encoder_block(
        layers, _positions(layers, ops, embedding(source), _LENGTH, 16), 16
    )
    x = _positions(layers, ops, embedding(target), _LENGTH, 16)
    x = x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = x + layers.MultiHeadAttention(2, 8)(layers.LayerNormalization()(x), encoded)
    model = keras.Model([source, target], layers.Dense(_WORDS)(x))
    x = {"source": tokens(_WORDS, _LENGTH), "target": tokens(_WORDS, _LENGTH)}
    return Training(model, x, labels(_WORDS, _LENGTH), cross_entropy())


def recurrent_translation() -> Training:
    """LSTM states handed from an encoder to a decoder."""
    keras, layers, _ = keras_modules()
    source, target = keras.Input((None, 12)), keras.Input((None, 12))
    _, *states = layers.LSTM(16, return_state=True)(source)
    x = layers.LSTM(16, return_sequences=True)(target, initial_state=states)
    model = keras.Model([source, target], layers.Dense(12)(x))
    return Training(
        model, (numbers(9, 12), numbers(8, 12)), labels(12, 8), cross_entropy()
    )


def timeseries_convnet() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((40, 1))
    x = inputs
    for _ in range(3):
        x = layers.Conv1D(16, 3, padding="same")(x)
        x = layers.ReLU()(layers.GroupNormalization(4)(x))
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(40, 1))


def timeseries_transformer() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((40, 1))
    x = inputs
    for _ in range(2):
        y = layers.MultiHeadAttention(key_dim=8, num_heads=2)(x, x)
        x = layers.LayerNormalization(epsilon=1e-6)(y) + x
        y = layers.Conv1D(4, kernel_size=1, activation="relu")(x)
        x = layers.LayerNormalization(epsilon=1e-6)(layers.Conv1D(1, 1)(y)) + x
    x = layers.GlobalAveragePooling1D(data_format="channels_first")(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(40, 1))


def weather_lstm() -> Training:
    keras, layers, _ = keras_modules()
    model = keras.Sequential([keras.Input((30, 7)), layers.LSTM(16), layers.Dense(1)])
    return Training(model, numbers(30, 7), numbers(1), "mse")


def anomaly_autoencoder() -> Training:
    keras, layers, _ = keras_modules()
    model = keras.Sequential(
        [
            keras.Input((32, 1)),
            layers.Conv1D(16, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1D(8, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(8, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(16, 7, padding="same", strides=2, activation="relu"),
            layers.Conv1DTranspose(1, 7, padding="same"),
        ]
    )
    return Training(model, numbers(32, 1), numbers(32, 1), "mse")


def wide_and_deep() -> Training:
    keras, layers, _ = keras_modules()
    figures = keras.Input((6,), name="figures")
    city = keras.Input((1,), dtype="int32", name="city")
    wide = layers.CategoryEncoding(10, output_mode="one_hot")(city)
    deep = layers.Concatenate()(
        [figures, layers.Flatten()(layers.Embedding(10, 4)(city))]
    )
    for width in (32, 16):
        deep = layers.ReLU()(layers.LayerNormalization()(layers.Dense(width)(deep)))
    model = keras.Model(
        {"figures": figures, "city": city},
        layers.Dense(3)(layers.Concatenate()([wide, deep])),
    )
    x = {"figures": numbers(6), "city": labels(10, 1).astype(np.int32)}
    return classification(model, x, 3)


def gated_residual_network() -> Training:
    """Variable selection by gated residual networks."""
    keras, layers, _ = keras_modules()

    def residual(x, width):
        y = layers.Dense(width)(layers.Dense(width, activation="elu")(x))
        gated = layers.Dense(width)(y) * layers.Dense(width, activation="sigmoid")(y)
        shortcut = x if x.shape[-1] == width else layers.Dense(width)(x)
        return layers.LayerNormalization()(shortcut + gated)

    inputs = keras.Input((5,))
    columns = [residual(layers.Dense(8)(inputs[:, i : i + 1]), 8) for i in range(5)]
    chosen = layers.Dense(5, activation="softmax")(residual(inputs, 8))
    stacked = keras.ops.stack(columns, axis=1)
    x = keras.ops.sum(stacked * chosen[:, :, None], axis=1)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(5))


def tab_transformer() -> Training:
    keras, layers, ops = keras_modules()
    figures = keras.Input((4,))
    words = [keras.Input((), dtype="int32") for _ in range(3)]
    x = ops.stack([layers.Embedding(8, 8)(word) for word in words], axis=1)
    x = x + layers.Embedding(3, 8)(ops.arange(3))
    x = layers.Flatten()(encoder_block(layers, x, 8))
    x = layers.Concatenate()([x, layers.LayerNormalization()(figures)])
    x = layers.Dense(16, activation="selu")(x)
    model = keras.Model([figures, *words], layers.Dense(4)(x))
    chosen = labels(8, 3).astype(np.int32)
    return classification(model, (numbers(4), *chosen.T))


def recommender() -> Training:
    """Collaborative filtering: products of embeddings, with biases."""
    keras, layers, ops = keras_modules()

    class Recommender(keras.Model):
        def __init__(self):
            super().__init__()
            self.users = layers.Embedding(20, 8, embeddings_regularizer=None)
            self.user_bias = layers.Embedding(20, 1)
            self.films = layers.Embedding(30, 8)
            self.film_bias = layers.Embedding(30, 1)

        def call(self, inputs):
            user, film = self.users(inputs[:, 0]), self.films(inputs[:, 1])
            dot = ops.sum(user * film, axis=1, keepdims=True)
            bias = self.user_bias(inputs[:, 0]) + self.film_bias(inputs[:, 1])
            return ops.sigmoid(dot + bias)

    x = labels(20, 2).astype(np.int32)
    model = Recommender()
    model(x)
    return Training(model, x, generator().random((BATCH, 1)), "binary_crossentropy")


def memory_efficient_embedding() -> Training:
    """Quotient and remainder of an id have embeddings of their own."""
    keras, layers, _ = keras_modules()

    class Embedding(layers.Layer):
        def __init__(self):
            super().__init__()
            self.quotient = layers.Embedding(8, 8)
            self.remainder = layers.Embedding(8, 8)

        def call(self, ids):
            return self.quotient(ids // 8) * self.remainder(ids % 8)

    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, layers.Dense(4)(Embedding()(inputs)))
    return classification(model, labels(64).astype(np.int32))


def vision_transformer() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    patches = ops.image.extract_patches(inputs, 4)
    x = layers.Dense(16)(layers.Reshape((16, 48))(patches))
    x = encoder_block(layers, _positions(layers, ops, x, 16, 16), 16)
    x = layers.Flatten()(layers.LayerNormalization()(x))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def mlp_mixer() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Reshape((16, 24))(layers.Conv2D(24, 4, 4)(inputs))
    for _ in range(2):
        y = ops.transpose(layers.LayerNormalization()(x), (0, 2, 1))
        y = layers.Dense(16)(layers.Dense(32, activation="gelu")(y))
        x = x + ops.transpose(y, (0, 2, 1))
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(24)(layers.Dense(32, activation="gelu")(y))
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def gated_mlp() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Reshape((16, 24))(layers.Conv2D(24, 4, 4)(inputs))
    y = layers.Dense(48, activation="gelu")(layers.LayerNormalization()(x))
    u, v = ops.split(y, 2, axis=-1)
    v = ops.transpose(layers.LayerNormalization()(v), (0, 2, 1))
    v = ops.transpose(layers.Dense(16, bias_initializer="ones")(v), (0, 2, 1))
    x = layers.GlobalAveragePooling1D()(x + layers.Dense(24)(u * v))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def fourier_mixing() -> Training:
    """FNet on patches of images: a Fourier transform in place of attention."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Reshape((16, 16))(layers.Conv2D(16, 4, 4)(inputs))
    real, _ = ops.fft2((x, ops.zeros_like(x)))
    x = layers.LayerNormalization()(x + real)
    x = layers.LayerNormalization()(x + layers.Dense(16, activation="gelu")(x))
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def conv_mixer() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(16, 2, strides=2, activation="gelu")(inputs)
    for _ in range(2):
        y = layers.DepthwiseConv2D(5, padding="same", activation="gelu")(x)
        x = layers.GroupNormalization(4)(x + y)
        x = layers.Conv2D(16, 1, activation="gelu")(x)
    x = layers.GlobalAvgPool2D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def compact_transformer() -> Training:
    """Convolutional tokens, and attention over the sequence in place of a class token."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    x = layers.Reshape((-1, 16))(layers.MaxPool2D(3, 4, padding="same")(x))
    x = encoder_block(layers, x, 16)
    weights = ops.softmax(layers.Dense(1)(x), axis=1)
    x = ops.squeeze(ops.matmul(ops.transpose(weights, (0, 2, 1)), x), axis=1)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def perceiver() -> Training:
    """A trained array of latents attends to the input."""
    keras, layers, ops = keras_modules()

    class Latents(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(6, 16), initializer="normal")

        def call(self, x):
            rows = ops.shape(x)[0]
            return ops.broadcast_to(self.table[None], (rows, 6, 16))

    inputs = keras.Input(_IMAGE)
    x = layers.Reshape((16, 16))(layers.Conv2D(16, 4, 4)(inputs))
    latents = Latents()(x)
    y = layers.MultiHeadAttention(2, 8)(layers.LayerNormalization()(latents), x)
    x = layers.GlobalAveragePooling1D()(encoder_block(layers, latents + y, 16))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def involution() -> Training:
    """A kernel for each place, made from the place itself."""
    keras, layers, ops = keras_modules()

    class Involution(layers.Layer):
        def __init__(self):
            super().__init__()
            self.make = keras.Sequential(
                [layers.Conv2D(2, 1, activation="relu"), layers.Conv2D(9, 1)]
            )

        def call(self, x):
            rows, height, width, channels = (
                ops.shape(x)[0],
                x.shape[1],
                x.shape[2],
                x.shape[3],
            )
            kernel = ops.reshape(self.make(x), (rows, height, width, 9, 1))
            patches = ops.image.extract_patches(x, 3, strides=1, padding="same")
            patches = ops.reshape(patches, (rows, height, width, 9, channels))
            return ops.sum(kernel * patches, axis=3)

    inputs = keras.Input(_IMAGE)
    x = layers.MaxPooling2D()(layers.ReLU()(Involution()(inputs)))
    x = layers.Flatten()(layers.ReLU()(Involution()(x)))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def unet() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    shortcut = x
    x = layers.SeparableConv2D(16, 3, padding="same")(layers.ReLU()(x))
    x = layers.GroupNormalization(4)(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = x + layers.Conv2D(16, 1, strides=2, padding="same")(shortcut)
    for width in (16, 8):
        y = layers.Conv2DTranspose(width, 3, padding="same")(layers.ReLU()(x))
        x = layers.UpSampling2D(2)(y) + layers.Conv2D(width, 1)(
            layers.UpSampling2D(2)(x)
        )
    model = keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x))
    return Training(model, numbers(*_IMAGE), labels(3, 16, 16), cross_entropy())


def super_resolution() -> Training:
    keras, layers, ops = keras_modules()

    class PixelShuffle(layers.Layer):
        def call(self, x):
            rows, height, width = (ops.shape(x)[axis] for axis in range(3))
            x = ops.reshape(x, (rows, height, width, 3, 3, 1))
            x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
            return ops.reshape(x, (rows, 3 * height, 3 * width, 1))

        def compute_output_shape(self, shape):
            return (shape[0], None, None, 1)

    inputs = keras.Input((None, None, 1))
    x = layers.Conv2D(16, 5, padding="same", activation="tanh")(inputs)
    x = PixelShuffle()(layers.Conv2D(9, 3, padding="same")(x))
    return Training(keras.Model(inputs, x), numbers(8, 8, 1), numbers(24, 24, 1), "mse")


def image_enhancement() -> Training:
    """Zero-DCE: curves that a network makes are applied again and again."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    y = layers.Concatenate()([x, y])
    curves = layers.Conv2D(12, 3, padding="same", activation="tanh")(y)
    x = inputs
    for i in range(4):
        x = x + curves[..., 3 * i : 3 * i + 3] * (ops.square(x) - x)
    return Training(keras.Model(inputs, x), numbers(*_IMAGE), numbers(*_IMAGE), "mae")


def denoising_autoencoder() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((28, 28, 1))
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(x)
    x = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
    y = generator().random((BATCH, 28, 28, 1))
    return Training(
        keras.Model(inputs, x), numbers(28, 28, 1), y, "binary_crossentropy"
    )


def point_net() -> Training:
    """Points turned by a matrix that a network makes of them."""
    keras, layers, ops = keras_modules()

    def points(x, width):
        x = layers.Conv1D(width, 1)(x)
        return layers.ReLU()(layers.GroupNormalization(4)(x))

    inputs = keras.Input((32, 3))
    y = layers.GlobalMaxPooling1D()(points(points(inputs, 8), 16))
    turn = layers.Dense(9, kernel_initializer="zeros", bias_initializer="ones")(y)
    x = ops.matmul(inputs, layers.Reshape((3, 3))(turn))
    x = layers.GlobalMaxPooling1D()(points(points(x, 8), 16))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(32, 3))


def radiance_field() -> Training:
    """NeRF's network: points through a deep MLP with a shortcut in its middle."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((20, 15))
    x = inputs
    for i in range(6):
        x = layers.Dense(16, activation="relu")(x)
        if i == 3:
            x = layers.Concatenate()([x, inputs])
    model = keras.Model(inputs, layers.Dense(4)(x))
    return Training(model, numbers(20, 15), numbers(20, 4), "mse")


def scan_3d() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((12, 12, 8, 1))
    x = layers.Conv3D(8, 3, activation="relu")(inputs)
    x = layers.GroupNormalization(4)(layers.MaxPool3D(2)(x))
    x = layers.Dense(16, activation="relu")(layers.GlobalAveragePooling3D()(x))
    return classification(
        keras.Model(inputs, layers.Dense(4)(x)), numbers(12, 12, 8, 1)
    )


def video_transformer() -> Training:
    """Tubelets of a video by a Conv3D, then a transformer."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input((8, 8, 8, 1))
    x = layers.Reshape((-1, 16))(layers.Conv3D(16, 4, 4)(inputs))
    x = encoder_block(layers, _positions(layers, ops, x, 8, 16), 16)
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(8, 8, 8, 1))


def next_frame() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((None, 8, 8, 1))
    x = layers.ConvLSTM2D(8, 3, padding="same", return_sequences=True)(inputs)
    x = layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x)
    y = generator().random((BATCH, 5, 8, 8, 1))
    return Training(
        keras.Model(inputs, x), numbers(5, 8, 8, 1), y, "binary_crossentropy"
    )


def video_features() -> Training:
    """A convolutional network on every frame, then a GRU."""
    keras, layers, _ = keras_modules()
    frame = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
        ]
    )
    inputs = keras.Input((5, 8, 8, 3))
    x = layers.GRU(8)(layers.TimeDistributed(frame)(inputs))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(5, 8, 8, 3))


def siamese() -> Training:
    """Two images through one network; the distance decides."""
    keras, layers, ops = keras_modules()
    tower = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(4, 5, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="tanh"),
        ]
    )
    one, other = keras.Input((16, 16, 1)), keras.Input((16, 16, 1))
    difference = tower(one) - tower(other)
    squares = ops.sum(ops.square(difference), axis=1, keepdims=True)
    distance = ops.sqrt(ops.maximum(squares, 1e-7))
    model = keras.Model([one, other], layers.Dense(1, activation="sigmoid")(distance))
    x = (numbers(16, 16, 1), numbers(16, 16, 1)[::-1].copy())
    return Training(model, x, labels(2)[:, None], "binary_crossentropy")


def multi_output() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Flatten()(layers.Conv2D(8, 3, strides=2, activation="relu")(inputs))
    outputs = {
        "place": layers.Dense(2, name="place")(x),
        "kind": layers.Dense(4, name="kind")(x),
    }
    y = {"place": numbers(2), "kind": labels(4)}
    losses = {"place": "mse", "kind": cross_entropy()}
    return Training(keras.Model(inputs, outputs), numbers(*_IMAGE), y, losses)


def switch_transformer() -> Training:
    """Every token goes to the expert that its router likes best."""
    keras, layers, ops = keras_modules()

    class Experts(layers.Layer):
        def __init__(self):
            super().__init__()
            self.router = layers.Dense(3)

        def build(self, shape):
            self.router.build(shape)
            self.first = self.add_weight(shape=(3, shape[-1], 24))
            self.second = self.add_weight(shape=(3, 24, shape[-1]))

        def call(self, x):
            shares = ops.softmax(self.router(x))
            chosen = ops.one_hot(ops.argmax(shares, axis=-1), 3) * shares
            hidden = ops.relu(ops.einsum("btd,edh->beth", x, self.first))
            each = ops.einsum("beth,ehd->betd", hidden, self.second)
            return ops.einsum("betd,bte->btd", each, chosen)

    inputs = keras.Input((_LENGTH,), dtype="int32")
    x = layers.Embedding(_WORDS, 16)(inputs)
    x = layers.GlobalAveragePooling1D()(x + Experts()(x))
    return classification(
        keras.Model(inputs, layers.Dense(4)(x)), tokens(_WORDS, _LENGTH)
    )


def graph_attention() -> Training:
    """One small graph to an example: its nodes, and which of them are neighbours."""
    keras, layers, ops = keras_modules()
    nodes, edges = keras.Input((9, 6)), keras.Input((9, 9))
    x = nodes
    for _ in range(2):
        x = layers.Dense(8, use_bias=False)(x)
        # Not `[9, 1] + [1, 9]`: Keras 3.15 adds that wrongly in a batch of one.
        own = ops.repeat(layers.Dense(1)(x), 9, axis=2)
        other = ops.repeat(layers.Dense(1)(x), 9, axis=2)
        scores = own + ops.transpose(other, (0, 2, 1))
        scores = ops.where(edges > 0, ops.leaky_relu(scores), -1e9)
        x = ops.relu(ops.matmul(ops.softmax(scores, axis=-1), x))
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model([nodes, edges], layers.Dense(4)(x))
    linked = (numbers(9, 9) > 0).astype(np.float32) + np.eye(9, dtype=np.float32)
    return classification(model, (numbers(9, 6), linked))


def speech_recognition() -> Training:
    """Convolutions and a GRU with the CTC loss."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((20, 12))
    x = layers.Conv1D(16, 3, padding="same", activation="relu")(inputs)
    x = layers.Bidirectional(layers.GRU(8, return_sequences=True))(x)
    model = keras.Model(inputs, layers.Dense(7)(x))
    y = generator().integers(1, 7, (BATCH, 5)).astype(np.int32)
    return Training(model, numbers(20, 12), y, keras.losses.CTC())


def audio_spectrogram() -> Training:
    keras, layers, _ = keras_modules()
    inputs = keras.Input((512,))
    x = layers.MelSpectrogram(
        fft_length=128, sequence_stride=64, num_mel_bins=16, sampling_rate=1000
    )(inputs)
    x = layers.Conv2D(8, 3, activation="relu")(x[..., None])
    x = layers.GlobalAveragePooling2D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(512))


def wave_net() -> Training:
    """Dilated causal convolutions with gates."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input((32, 1))
    x, skipped = layers.Conv1D(8, 1)(inputs), 0.0
    for rate in (1, 2, 4, 8):
        dilated = {"padding": "causal", "dilation_rate": rate}
        gate = layers.Conv1D(8, 2, activation="sigmoid", **dilated)(x)
        y = layers.Conv1D(8, 1)(
            layers.Conv1D(8, 2, activation="tanh", **dilated)(x) * gate
        )
        x, skipped = x + y, skipped + y
    model = keras.Model(inputs, layers.Dense(16)(ops.relu(skipped)))
    return Training(model, numbers(32, 1), labels(16, 32), cross_entropy())


def distillation() -> Training:
    """A student learns from its labels and from the outputs of a frozen teacher."""
    keras, layers, ops = keras_modules()

    class Distiller(keras.Model):
        def __init__(self):
            super().__init__()
            self.teacher = layers.Dense(4)
            self.teacher.trainable = False
            self.student = keras.Sequential(
                [layers.Dense(8, activation="relu"), layers.Dense(4)]
            )

        def call(self, x):
            return self.student(x)

        def compute_loss(self, x=None, y=None, y_pred=None, *arguments, **keywords):
            taught = ops.softmax(self.teacher(x) / 3.0)
            near = keras.losses.kl_divergence(taught, ops.softmax(y_pred / 3.0))
            right = keras.losses.sparse_categorical_crossentropy(
                y, y_pred, from_logits=True
            )
            return ops.mean(0.1 * right + 0.9 * near)

    model = Distiller()
    x = numbers(6)
    model.teacher(x), model(x)
    return Training(model, x, labels(4), None)


def variational_autoencoder() -> Training:
    """Its mean in place of a sample: the loop over examples draws other numbers."""
    keras, layers, ops = keras_modules()

    class VAE(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = layers.Dense(16, activation="relu")
            self.mean, self.log_variance = layers.Dense(3), layers.Dense(3)
            self.decoder = layers.Dense(12, activation="sigmoid")

        def call(self, x):
            hidden = self.encoder(x)
            mean, spread = self.mean(hidden), self.log_variance(hidden)
            return self.decoder(mean + ops.exp(0.5 * spread)), mean, spread

        def compute_loss(self, x=None, y=None, y_pred=None, *arguments, **keywords):
            image, mean, spread = y_pred
            error = ops.sum(
                keras.losses.binary_crossentropy(y[..., None], image[..., None]), axis=1
            )
            divergence = 1 + spread - ops.square(mean) - ops.exp(spread)
            return ops.mean(error - 0.5 * ops.sum(divergence, axis=1))

    x = generator().random((BATCH, 12)).astype(np.float32)
    model = VAE()
    model(x)
    return Training(model, x, x, None)


def contrastive_batch() -> Training:
    """SimCLR's loss compares all images of a batch: no example has a loss of its own."""
    keras, layers, ops = keras_modules()
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(8), layers.UnitNormalization()]
    )

    def loss(y, z):
        return keras.losses.sparse_categorical_crossentropy(
            ops.arange(ops.shape(z)[0]),
            ops.matmul(z, ops.transpose(z)),
            from_logits=True,
        )

    return Training(model, numbers(8), labels(4), loss)


def batch_normalized() -> Training:
    """As keras.io writes it: BatchNormalization that trains."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((40, 1))
    x = layers.Conv1D(8, 3, padding="same")(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(40, 1))


def _case(build: Callable[[], Training], name: str, remark: str = "") -> Case:
    return Case(name, "keras.io pattern", build, remark)


_NORMALISED = "GroupNormalization for BatchNormalization"

CASES = [
    _case(mnist_convnet, "simple MNIST convnet"),
    _case(text_convnet, "text classification, Conv1D"),
    _case(bidirectional_lstm, "text classification, bidirectional LSTM"),
    _case(text_transformer, "text classification, transformer"),
    _case(miniature_gpt, "miniature GPT"),
    _case(named_entities, "named entities, masked GRU", 'reduction="sum"'),
    _case(addition_lstm, "addition, sequence to sequence"),
    _case(translation_transformer, "translation, transformer"),
    _case(recurrent_translation, "translation, LSTM states"),
    _case(timeseries_convnet, "time series, convnet", _NORMALISED),
    _case(timeseries_transformer, "time series, transformer"),
    _case(weather_lstm, "weather forecast, LSTM"),
    _case(anomaly_autoencoder, "anomalies, autoencoder"),
    _case(wide_and_deep, "wide and deep table", "LayerNormalization"),
    _case(gated_residual_network, "gated residual networks"),
    _case(tab_transformer, "TabTransformer"),
    _case(recommender, "collaborative filtering"),
    _case(memory_efficient_embedding, "quotient-remainder embedding"),
    _case(vision_transformer, "vision transformer"),
    _case(mlp_mixer, "MLP-Mixer"),
    _case(gated_mlp, "gMLP"),
    _case(fourier_mixing, "FNet on images"),
    _case(conv_mixer, "ConvMixer", _NORMALISED),
    _case(compact_transformer, "compact convolutional transformer"),
    _case(perceiver, "Perceiver"),
    _case(involution, "involution"),
    _case(unet, "U-Net", _NORMALISED),
    _case(super_resolution, "super-resolution, any size"),
    _case(image_enhancement, "Zero-DCE"),
    _case(denoising_autoencoder, "denoising autoencoder"),
    _case(point_net, "PointNet", _NORMALISED),
    _case(radiance_field, "NeRF's network"),
    _case(scan_3d, "CT scans, Conv3D", _NORMALISED),
    _case(video_transformer, "video vision transformer"),
    _case(next_frame, "next frame, ConvLSTM"),
    _case(video_features, "video, TimeDistributed and GRU"),
    _case(siamese, "siamese network"),
    _case(multi_output, "several outputs"),
    _case(switch_transformer, "switch transformer"),
    _case(graph_attention, "graph attention, a graph to an example"),
    _case(speech_recognition, "speech recognition, CTC"),
    _case(audio_spectrogram, "audio, mel spectrogram"),
    _case(wave_net, "WaveNet"),
    _case(distillation, "knowledge distillation, `compute_loss`"),
    _case(variational_autoencoder, "VAE, `compute_loss`"),
    _case(contrastive_batch, "SimCLR", "compares the whole batch"),
    _case(batch_normalized, "BatchNormalization that trains", "mixes the batch"),
]
