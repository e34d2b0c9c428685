"""Models in the style of keras.io's examples that no rule was written for.

They were tried when the rules were done, to see what a model of somebody else meets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import (
    Case,
    Training,
    labels,
    numbers,
    tokens,
)
from benchmarks.third_party.keras_io import classification, encoder_block, keras_modules

_IMAGE = (16, 16, 3)


def swin() -> Training:
    """Windows that are shifted, with a table of relative positions."""
    keras, layers, ops = keras_modules()

    class WindowAttention(layers.Layer):
        def __init__(self, window, heads, width):
            super().__init__()
            self.window, self.heads, self.width = window, heads, width
            self.qkv, self.out = layers.Dense(3 * width), layers.Dense(width)
            places = np.stack(np.meshgrid(*[np.arange(window)] * 2, indexing="ij"))
            places = places.reshape(2, -1)
            apart = places[:, :, None] - places[:, None] + window - 1
            self.index = (apart[0] * (2 * window - 1) + apart[1]).reshape(-1)

        def build(self, shape):
            self.qkv.build(shape)
            self.out.build(shape)
            rows = (2 * self.window - 1) ** 2
            self.table = self.add_weight(shape=(rows, self.heads), name="positions")

        def call(self, x):
            places, width = self.window**2, self.width // self.heads
            qkv = ops.reshape(self.qkv(x), (-1, places, 3, self.heads, width))
            q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), 3)
            scores = ops.matmul(q * width**-0.5, ops.transpose(k, (0, 1, 3, 2)))
            bias = ops.reshape(
                ops.take(self.table, self.index, axis=0), (places,) * 2 + (-1,)
            )
            scores = ops.softmax(scores + ops.transpose(bias, (2, 0, 1))[None])
            y = ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3))
            return self.out(ops.reshape(y, (-1, places, self.width)))

    def windows(x):
        x = ops.transpose(ops.reshape(x, (-1, 4, 2, 4, 2, 16)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, 4, 16))

    def together(x):
        x = ops.transpose(ops.reshape(x, (-1, 4, 4, 2, 2, 16)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, 8, 8, 16))

    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(16, 2, strides=2)(inputs)
    for shift in (0, 1):
        y = ops.roll(layers.LayerNormalization()(x), (-shift,) * 2, axis=(1, 2))
        y = together(WindowAttention(2, 2, 16)(windows(y)))
        x = x + ops.roll(y, (shift,) * 2, axis=(1, 2))
        y = layers.Dense(32, activation="gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(16)(y)
    x = layers.GlobalAveragePooling2D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def skip_gram() -> Training:
    """Words and the contexts in which they are, or are not."""
    keras, layers, ops = keras_modules()

    class SkipGram(keras.Model):
        def __init__(self):
            super().__init__()
            self.target = layers.Embedding(40, 8)
            self.context = layers.Embedding(40, 8)

        def call(self, pair):
            target, context = pair
            return ops.einsum("be,bce->bc", self.target(target), self.context(context))

    model = SkipGram()
    x = (labels(40).astype(np.int32), tokens(40, 5))
    model(x)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    return Training(model, x, np.eye(5, dtype=np.float32)[labels(5)], loss)


def molecules() -> Training:
    """Messages along the bonds of a molecule, and a GRU cell for each atom."""
    keras, layers, ops = keras_modules()

    class Messages(layers.Layer):
        def __init__(self):
            super().__init__()
            self.cell = layers.GRUCell(8)

        def build(self, shape):
            self.kernel = self.add_weight(shape=(3, 64), name="kernel")
            self.bias = self.add_weight(shape=(64,), initializer="zeros", name="bias")
            self.cell.build((None, 8))

        def call(self, atoms, bonds):
            edges = ops.reshape(
                ops.matmul(bonds, self.kernel) + self.bias, (-1, 6, 6, 8, 8)
            )
            state = ops.reshape(atoms, (-1, 8))
            for _ in range(2):
                neighbours = ops.reshape(state, (-1, 6, 8))
                messages = ops.einsum("bijkl,bjl->bik", edges, neighbours)
                state, _ = self.cell(ops.reshape(messages, (-1, 8)), [state])
            return ops.reshape(state, (-1, 6, 8))

    atoms, bonds = keras.Input((6, 8)), keras.Input((6, 6, 3))
    x = encoder_block(layers, Messages()(atoms, bonds), 8)
    x = layers.Dense(1)(layers.GlobalAveragePooling1D()(x))
    x_of_all = (numbers(6, 8), numbers(6, 6, 3))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return Training(keras.Model([atoms, bonds], x), x_of_all, labels(2, 1), loss)


def depth() -> Training:
    """Monocular depth: structural similarity, edges and differences in one loss."""
    import tensorflow as tf

    keras, layers, ops = keras_modules()

    def loss(y, found):
        dy_true, dx_true = tf.image.image_gradients(y)
        dy, dx = tf.image.image_gradients(found)
        weights = ops.exp(
            ops.mean(ops.abs(dx_true) + ops.abs(dy_true), -1, keepdims=True)
        )
        smooth = ops.mean(ops.abs(dx * weights) + ops.abs(dy * weights), axis=(1, 2, 3))
        similar = tf.image.ssim(y, found, max_val=1.0, filter_size=5)
        return (
            smooth + 0.85 * (1 - similar) + ops.mean(ops.abs(y - found), axis=(1, 2, 3))
        )

    inputs = keras.Input(_IMAGE)
    first = layers.LeakyReLU(negative_slope=0.2)(
        layers.Conv2D(8, 3, padding="same")(inputs)
    )
    x = layers.Conv2D(8, 3, padding="same", activation="tanh")(
        layers.MaxPool2D(2)(first)
    )
    x = layers.Concatenate()(
        [layers.UpSampling2D(2, interpolation="bilinear")(x), first]
    )
    x = layers.Conv2D(1, 1, activation="sigmoid")(x)
    y = 1 / (1 + np.exp(-numbers(16, 16, 1)))
    return Training(
        keras.Model(inputs, x), numbers(*_IMAGE), y.astype(np.float32), loss
    )


def learnable_resizer() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input((24, 24, 3))
    small = ops.image.resize(inputs, (16, 16), interpolation="bilinear")
    x = layers.Conv2D(8, 7, padding="same")(inputs)
    x = layers.GroupNormalization(4)(layers.LeakyReLU(negative_slope=0.2)(x))
    x = ops.image.resize(x, (16, 16), interpolation="bicubic")
    y = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = x + layers.GroupNormalization(4)(y)
    x = small + layers.Conv2D(3, 7, padding="same")(x)
    x = layers.Flatten()(layers.Conv2D(4, 4, strides=4)(x))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(24, 24, 3))


def vector_quantised() -> Training:
    """VQ-VAE: codes by nearest neighbours, and gradients straight through."""
    keras, layers, ops = keras_modules()

    class VectorQuantised(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = layers.Conv2D(4, 4, strides=4, activation="tanh")
            self.decoder = layers.Conv2DTranspose(3, 4, strides=4)

        def build(self, shape):
            self.encoder.build(shape)
            self.codes = self.add_weight(shape=(8, 4), name="codes")
            self.decoder.build((None, 4, 4, 4))

        def quantise(self, z):
            flat = ops.reshape(z, (-1, 4))
            far = ops.sum(ops.square(flat[:, None] - self.codes[None]), axis=-1)
            chosen = ops.one_hot(ops.argmin(far, axis=1), 8)
            return ops.reshape(ops.matmul(chosen, self.codes), ops.shape(z))

        def call(self, x):
            z = self.encoder(x)
            q = self.quantise(z)
            return self.decoder(z + ops.stop_gradient(q - z)), z, q

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            found, z, q = y_pred
            losses = ops.mean(ops.square(found - y), axis=(1, 2, 3))
            losses += ops.mean(ops.square(ops.stop_gradient(z) - q), axis=(1, 2, 3))
            losses += 0.25 * ops.mean(
                ops.square(z - ops.stop_gradient(q)), axis=(1, 2, 3)
            )
            return ops.mean(losses)

    model = VectorQuantised()
    x = numbers(*_IMAGE)
    model(x)
    return Training(model, x, x, None)


def n_beats() -> Training:
    """Blocks that each explain a part of the past and hand on the rest."""
    keras, layers, _ = keras_modules()
    rest = inputs = keras.Input((20,))
    forecast = 0.0
    for _ in range(3):
        x = layers.Dense(16, activation="relu")(rest)
        x = layers.Dense(16, activation="relu")(x)
        rest = rest - layers.Dense(20, use_bias=False)(x)
        forecast = forecast + layers.Dense(5, use_bias=False)(x)
    return Training(keras.Model(inputs, forecast), numbers(20), numbers(5), "mae")


def deep_ar() -> Training:
    """A forecast as the parameters of a Student t distribution."""
    import tensorflow as tf

    keras, layers, ops = keras_modules()

    def loss(y, found):
        mean, scale, df = ops.split(found, 3, axis=-1)
        scale, df = ops.softplus(scale) + 1e-3, 2 + ops.softplus(df)
        z = (y - mean) / scale
        density = tf.math.lgamma((df + 1) / 2) - tf.math.lgamma(df / 2)
        density += -0.5 * ops.log(df) - ops.log(scale)
        return -ops.mean(density - (df + 1) / 2 * ops.log1p(z * z / df), axis=(1, 2))

    series, store = keras.Input((12, 2)), keras.Input((), dtype="int32")
    embedded = layers.RepeatVector(12)(layers.Embedding(6, 4)(store))
    x = layers.Concatenate()([series, embedded])
    x = layers.GRU(8, return_sequences=True)(layers.LSTM(8, return_sequences=True)(x))
    model = keras.Model([series, store], layers.Dense(3)(x))
    x = (numbers(12, 2), labels(6).astype(np.int32))
    return Training(model, x, numbers(12, 1), loss)


def super_resolution_edsr() -> Training:
    import tensorflow as tf

    keras, layers, _ = keras_modules()
    inputs = keras.Input((None, None, 3))
    x = first = layers.Conv2D(8, 3, padding="same")(layers.Rescaling(1 / 255)(inputs))
    for _ in range(2):
        y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        x = x + 0.1 * layers.Conv2D(8, 3, padding="same")(y)
    x = layers.Conv2D(32, 3, padding="same")(x + first)
    x = layers.Lambda(lambda x: tf.nn.depth_to_space(x, 2))(x)
    x = layers.Rescaling(255)(layers.Conv2D(3, 3, padding="same")(x))
    x_of_all = 100 * np.abs(numbers(8, 8, 3))
    return Training(
        keras.Model(inputs, x), x_of_all, 100 * np.abs(numbers(16, 16, 3)), "mae"
    )


def selective_kernels() -> Training:
    """MIRNet: resolutions that are weighed against each other, and dual attention."""
    keras, layers, ops = keras_modules()

    def dual(x):
        mean = layers.GlobalAveragePooling2D(keepdims=True)(x)
        channel = layers.Conv2D(8, 1, activation="sigmoid")(
            layers.Conv2D(2, 1, activation="relu")(mean)
        )
        both = [ops.mean(x, -1, keepdims=True), ops.max(x, -1, keepdims=True)]
        place = layers.Conv2D(1, 1, activation="sigmoid")(ops.concatenate(both, -1))
        return x + layers.Conv2D(8, 1)(ops.concatenate([x * channel, x * place], -1))

    inputs = keras.Input(_IMAGE)
    fine = layers.Conv2D(8, 3, padding="same")(inputs)
    coarse = layers.Conv2D(8, 3, padding="same")(layers.MaxPooling2D(2)(fine))
    fine, coarse = dual(fine), layers.UpSampling2D(2)(dual(coarse))
    squeezed = layers.GlobalAveragePooling2D(keepdims=True)(fine + coarse)
    squeezed = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(4, 1)(squeezed))
    weights = ops.softmax(
        ops.stack([layers.Conv2D(8, 1)(squeezed) for _ in range(2)]), axis=0
    )
    x = weights[0] * fine + weights[1] * coarse
    model = keras.Model(inputs, inputs + layers.Conv2D(3, 3, padding="same")(x))

    def charbonnier(y, found):
        return ops.mean(ops.sqrt(ops.square(y - found) + 1e-6), axis=(1, 2, 3))

    return Training(model, numbers(*_IMAGE), numbers(*_IMAGE), charbonnier)


def capsules() -> Training:
    """Capsules whose outputs agree by routing, three times."""
    keras, layers, ops = keras_modules()

    def squash(x):
        square = ops.sum(ops.square(x), axis=-1, keepdims=True)
        return x * square / (1 + square) / ops.sqrt(square + 1e-7)

    class Capsules(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(
                shape=(4, shape[1], 6, shape[2]), name="kernel"
            )

        def call(self, x):
            votes = ops.einsum("ijkl,bjl->bijk", self.kernel, x)
            routes = ops.zeros_like(votes[..., 0])
            for _ in range(3):
                weights = ops.softmax(routes, axis=1)
                found = squash(ops.einsum("bij,bijk->bik", weights, votes))
                routes = routes + ops.einsum("bijk,bik->bij", votes, found)
            return ops.sqrt(ops.sum(ops.square(found), axis=-1) + 1e-7)

    def margin(y, found):
        return ops.sum(
            y * ops.square(ops.relu(0.9 - found))
            + 0.5 * (1 - y) * ops.square(ops.relu(found - 0.1)),
            axis=-1,
        )

    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(8, 5, strides=2, activation="relu")(inputs)
    x = squash(layers.Reshape((-1, 4))(layers.Conv2D(8, 3, strides=2)(x)))
    model = keras.Model(inputs, Capsules()(x))
    return Training(
        model, numbers(*_IMAGE), np.eye(4, dtype=np.float32)[labels(4)], margin
    )


def linear_attention() -> Training:
    """Performer: queries and keys through random features that stay as they are."""
    keras, layers, ops = keras_modules()

    class Linear(layers.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (
                layers.EinsumDense("btd,dhe->bthe", (None, 2, 8)) for _ in range(3)
            )
            self.out = layers.EinsumDense("bthe,hed->btd", (None, 16))

        def build(self, shape):
            for layer in (self.q, self.k, self.v):
                layer.build(shape)
            self.out.build((None, None, 2, 8))
            self.features = self.add_weight(
                shape=(8, 12),
                initializer="random_normal",
                trainable=False,
                name="features",
            )

        def mapped(self, x):
            return ops.exp(
                ops.matmul(x, self.features) - ops.sum(x * x, -1, keepdims=True) / 2
            )

        def call(self, x):
            q, k, v = self.mapped(self.q(x)), self.mapped(self.k(x)), self.v(x)
            summed = ops.einsum("bthm,bthe->bhme", k, v)
            scale = ops.einsum("bthm,bhm->bth", q, ops.sum(k, axis=1))
            return self.out(ops.einsum("bthm,bhme->bthe", q, summed) / scale[..., None])

    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(60, 16)(inputs)
    x = layers.LayerNormalization()(x + Linear()(x))
    x = layers.GlobalMaxPooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), tokens(60, 16))


def hyper_network() -> Training:
    """A small network whose weights another one makes for each example."""
    keras, layers, ops = keras_modules()
    x, task = keras.Input((10, 3)), keras.Input((5,))
    hidden = layers.Dense(16, activation="tanh")(task)
    first = layers.Reshape((3, 8))(layers.Dense(24)(hidden))
    second = layers.Reshape((8, 1))(layers.Dense(8)(hidden))
    outputs = ops.matmul(ops.tanh(ops.matmul(x, first)), second)
    return Training(
        keras.Model([x, task], outputs),
        (numbers(10, 3), numbers(5)),
        numbers(10, 1),
        "mse",
    )


def masked_autoencoder() -> Training:
    """MAE: a decoder sees a trained token in place of patches that are left out."""
    keras, layers, ops = keras_modules()

    class Tokens(layers.Layer):
        def build(self, shape):
            self.token = self.add_weight(shape=(1, 1, 16), name="mask")

        def call(self, x):
            return ops.repeat(
                ops.repeat(self.token, 12, axis=1), ops.shape(x)[0], axis=0
            )

    inputs = keras.Input(_IMAGE)
    patches = layers.Reshape((16, 48))(ops.image.extract_patches(inputs, 4))
    places = layers.Embedding(16, 16)
    x = layers.Dense(16)(patches) + places(ops.arange(16))
    seen = encoder_block(layers, ops.take(x, ops.arange(0, 16, 4), axis=1), 16)
    left_out = Tokens()(seen) + places(
        ops.convert_to_tensor([i for i in range(16) if i % 4])
    )
    x = encoder_block(layers, ops.concatenate([seen, left_out], axis=1), 16)
    return Training(
        keras.Model(inputs, layers.Dense(48)(x)),
        numbers(*_IMAGE),
        numbers(16, 48),
        "mse",
    )


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, "keras.io pattern", build, remark)


CASES = [
    _case("Swin transformer, windows by hand", swin),
    _case("word2vec, skip-grams", skip_gram),
    _case("messages between the atoms of a molecule", molecules),
    _case("depth of images, SSIM", depth),
    _case("learnable resizer", learnable_resizer),
    _case("vector-quantised VAE", vector_quantised),
    _case("N-BEATS", n_beats),
    _case("DeepAR, Student t", deep_ar),
    _case("EDSR, any size", super_resolution_edsr),
    _case("MIRNet, selective kernels", selective_kernels),
    _case("capsules with routing", capsules),
    _case("Performer, linear attention", linear_attention),
    _case("hyper-network", hyper_network),
    _case("masked autoencoder", masked_autoencoder),
]
