"""Architectures of papers, as people post them: written to see what no rule was made for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import Case, Training, labels, numbers, tokens
from benchmarks.third_party.keras_io import classification, encoder_block, keras_modules

_IMAGE = (8, 8, 3)
_TIME, _WIDTH, _WORDS = 8, 8, 30


def _next_token(model) -> Training:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Training(model, tokens(_WORDS, _TIME), labels(_WORDS, _TIME), loss)


def u_vit() -> Training:
    """Diffusion by a transformer with long skips: time and class are tokens."""
    keras, layers, ops = keras_modules()

    class Places(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(
                shape=(1, *shape[1:]), initializer="random_normal"
            )

        def call(self, x):
            return x + self.table

    def waves(time):
        angles = time[:, None] * ops.exp(-0.5 * ops.arange(8, dtype="float32"))
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)

    image, time = keras.Input(_IMAGE), keras.Input(())
    label = keras.Input((), dtype="int32")
    patches = layers.Reshape((16, 12))(ops.image.extract_patches(image, 2))
    joined = [
        layers.Dense(16)(layers.Dense(16, activation="silu")(waves(time)))[:, None],
        layers.Embedding(5, 16)(label)[:, None],
        layers.Dense(16)(patches),
    ]
    first = encoder_block(layers, Places()(ops.concatenate(joined, axis=1)), 16)
    middle = encoder_block(layers, first, 16)
    x = layers.Dense(16)(ops.concatenate([middle, first], axis=-1))
    x = layers.LayerNormalization()(encoder_block(layers, x, 16))[:, 2:]
    x = ops.reshape(layers.Dense(12)(x), (-1, 4, 4, 2, 2, 3))
    x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, *_IMAGE))
    outputs = layers.Conv2D(3, 3, padding="same")(x)
    x_of_all = (numbers(*_IMAGE), np.abs(numbers()), labels(5).astype(np.int32))
    model = keras.Model([image, time, label], outputs)
    return Training(model, x_of_all, numbers(*_IMAGE), "mse")


def retention() -> Training:
    """RetNet: attention without softmax, that fades with the distance."""
    keras, layers, ops = keras_modules()
    heads, depth = 2, 4

    class Retention(layers.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.gate, self.out = (
                layers.Dense(_WIDTH, use_bias=False) for _ in range(5)
            )
            self.norm = layers.GroupNormalization(heads)
            apart = np.arange(_TIME)[:, None] - np.arange(_TIME)
            fades = 1 - 2.0 ** (-5 - np.arange(heads))
            kept = np.where(apart >= 0, fades[:, None, None] ** apart, 0.0)
            self.kept = kept.astype(np.float32)

        def build(self, shape):
            for layer in (self.q, self.k, self.v, self.gate, self.out):
                layer.build(shape)
            self.norm.build((None, _WIDTH))

        def split(self, x):
            return ops.transpose(
                ops.reshape(x, (-1, _TIME, heads, depth)), (0, 2, 1, 3)
            )

        def call(self, x):
            q, k, v = (self.split(layer(x)) for layer in (self.q, self.k, self.v))
            y = ops.matmul(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.kept, v)
            y = self.norm(ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, _WIDTH)))
            y = ops.reshape(y, (-1, _TIME, _WIDTH))
            return self.out(ops.silu(self.gate(x)) * y)

    inputs = keras.Input((_TIME,), dtype="int32")
    x = layers.Embedding(_WORDS, _WIDTH)(inputs)
    for _ in range(2):
        x = x + Retention()(layers.LayerNormalization()(x))
    return _next_token(keras.Model(inputs, layers.Dense(_WORDS)(x)))


def selective_states() -> Training:
    """Mamba: a state that the data decide how to keep, by `ops.scan`."""
    keras, layers, ops = keras_modules()
    size = 4

    class Selective(layers.Layer):
        def __init__(self):
            super().__init__()
            self.entry, self.out = layers.Dense(2 * _WIDTH), layers.Dense(_WIDTH)
            self.near = layers.Conv1D(_WIDTH, 3, groups=_WIDTH, padding="causal")
            self.choice, self.pace = layers.Dense(1 + 2 * size), layers.Dense(_WIDTH)

        def build(self, shape):
            for layer in (self.entry, self.near, self.choice, self.out):
                layer.build(shape)
            self.pace.build((None, None, 1))
            self.decay = self.add_weight(shape=(_WIDTH, size))
            self.direct = self.add_weight(shape=(_WIDTH,), initializer="ones")

        def call(self, x):
            u, gate = ops.split(self.entry(x), 2, axis=-1)
            u = ops.silu(self.near(u))
            pace, write, read = ops.split(self.choice(u), [1, 1 + size], axis=-1)
            pace = ops.softplus(self.pace(pace))
            keep = ops.exp(-pace[..., None] * ops.exp(self.decay))
            add = (pace * u)[..., None] * write[:, :, None]

            def step(state, now):
                state = now[0] * state + now[1]
                return state, state

            by_time = (ops.swapaxes(keep, 0, 1), ops.swapaxes(add, 0, 1))
            _, states = ops.scan(step, ops.zeros_like(add[:, 0]), by_time)
            y = ops.einsum("btdn,btn->btd", ops.swapaxes(states, 0, 1), read)
            return self.out((y + self.direct * u) * ops.silu(gate))

        def compute_output_shape(self, shape):
            return shape

    inputs = keras.Input((_TIME,), dtype="int32")
    x = layers.Embedding(_WORDS, _WIDTH)(inputs)
    for _ in range(2):
        x = x + Selective()(layers.LayerNormalization()(x))
    return _next_token(keras.Model(inputs, layers.Dense(_WORDS)(x)))


def max_vit() -> Training:
    """Attention within windows, then along a grid that is spread over the image."""
    keras, layers, ops = keras_modules()
    side, width = 4, 8

    class Attention(layers.Layer):
        def __init__(self, is_grid):
            super().__init__()
            self.is_grid = is_grid
            self.norm = layers.LayerNormalization()
            self.attention = layers.MultiHeadAttention(2, 4)

        def build(self, shape):
            places = (None, side * side, width)
            self.norm.build(places)
            self.attention.build(places, places)
            self.places = self.add_weight(shape=places[1:], initializer="random_normal")

        def call(self, x):
            groups = _IMAGE[0] // side
            if self.is_grid:
                cut, order, back = (
                    (side, groups),
                    (0, 2, 4, 1, 3, 5),
                    (0, 3, 1, 4, 2, 5),
                )
            else:
                cut, order, back = (
                    (groups, side),
                    (0, 1, 3, 2, 4, 5),
                    (0, 1, 3, 2, 4, 5),
                )
            y = ops.transpose(ops.reshape(x, (-1, *cut, *cut, width)), order)
            y = ops.reshape(y, (-1, side * side, width))
            z = self.norm(y) + self.places
            y = ops.reshape(
                y + self.attention(z, z), (-1, groups, groups, side, side, width)
            )
            return ops.reshape(ops.transpose(y, back), (-1, *_IMAGE[:2], width))

    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(width, 3, padding="same")(inputs)
    y = layers.Conv2D(16, 1, activation="gelu")(layers.LayerNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same", activation="gelu")(y)
    squeezed = layers.GlobalAveragePooling2D(keepdims=True)(y)
    squeezed = layers.Conv2D(4, 1, activation="silu")(squeezed)
    y = y * layers.Conv2D(16, 1, activation="sigmoid")(squeezed)
    x = x + layers.Conv2D(width, 1)(y)
    for is_grid in (False, True):
        x = Attention(is_grid)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def deformable() -> Training:
    """A convolution whose nine places the image itself moves, between pixels."""
    keras, layers, ops = keras_modules()

    class Deformable(layers.Layer):
        def __init__(self, filters):
            super().__init__()
            self.moves = layers.Conv2D(18, 3, padding="same")
            self.kernel = layers.Dense(filters)

        def build(self, shape):
            self.moves.build(shape)
            self.kernel.build((*shape[:-1], 9 * shape[-1]))

        def call(self, x):
            rows, columns, channels = x.shape[1:]
            at = np.stack(np.indices((rows, columns)), axis=-1)[:, :, None]
            near = np.stack(np.indices((3, 3)), axis=-1).reshape(9, 2) - 1
            moves = ops.reshape(self.moves(x), (-1, rows, columns, 9, 2))
            place = moves + (at + near).astype(np.float32)
            flat = ops.reshape(x, (-1, rows * columns, channels))
            found = 0.0
            for corner in np.stack(np.indices((2, 2)), axis=-1).reshape(4, 2):
                pixel = ops.floor(place) + corner.astype(np.float32)
                share = ops.prod(1 - ops.abs(place - pixel), axis=-1)
                pixel = ops.clip(pixel, 0, [rows - 1, columns - 1])
                number = ops.cast(pixel[..., 0] * columns + pixel[..., 1], "int32")
                number = ops.reshape(number, (-1, rows * columns * 9, 1))
                value = ops.take_along_axis(flat, number, axis=1)
                value = ops.reshape(value, (-1, rows, columns, 9, channels))
                found = found + value * share[..., None]
            return self.kernel(ops.reshape(found, (-1, rows, columns, 9 * channels)))

    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(4, 3, padding="same", activation="tanh")(inputs)
    x = layers.GlobalAveragePooling2D()(ops.tanh(Deformable(6)(x)))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def recommendation() -> Training:
    """DLRM: tables of many sizes, bags of clicks, and all pairs of their vectors."""
    keras, layers, ops = keras_modules()
    sizes, bag = (7, 11, 40), 5

    def tower(x, *widths):
        for width in widths:
            x = layers.Dense(width, activation="relu")(x)
        return x

    dense, clicks = keras.Input((6,)), keras.Input((bag,), dtype="int32")
    kinds = [keras.Input((), dtype="int32") for _ in sizes]
    vectors = [tower(dense, 16, _WIDTH)]
    for kind, size in zip(kinds, sizes, strict=True):
        vectors.append(layers.Embedding(size, _WIDTH)(kind))
    vectors.append(ops.sum(layers.Embedding(60, _WIDTH)(clicks), axis=1))
    stacked = ops.stack(vectors, axis=1)
    pairs = ops.matmul(stacked, ops.transpose(stacked, (0, 2, 1)))
    above = np.flatnonzero(np.triu(np.ones([len(vectors)] * 2), 1))
    pairs = ops.take(layers.Flatten()(pairs), above, axis=1)
    x = tower(ops.concatenate([vectors[0], pairs], axis=-1), 16)
    model = keras.Model([dense, clicks, *kinds], layers.Dense(1)(x))
    x_of_all = (
        numbers(6),
        tokens(60, bag),
        *(labels(size).astype(np.int32) for size in sizes),
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return Training(model, x_of_all, labels(2, 1), loss)


def neural_factors() -> Training:
    """NeuMF: a product of factors, beside a network on the same users and films."""
    keras, layers, _ = keras_modules()
    user, film = (keras.Input((1,), dtype="int32") for _ in range(2))

    def vector(number, size):
        table = layers.Embedding(size, _WIDTH)
        return layers.Flatten()(table(number))

    product = vector(user, 20) * vector(film, 30)
    x = layers.Concatenate()([vector(user, 20), vector(film, 30)])
    x = layers.Dense(8, activation="relu")(layers.Dense(16, activation="relu")(x))
    x = layers.Dense(1)(layers.Concatenate()([product, x]))
    x_of_all = tuple(labels(size, 1).astype(np.int32) for size in (20, 30))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return Training(keras.Model([user, film], x), x_of_all, labels(2, 1), loss)


def temporal_convolutions() -> Training:
    """TCN: causal convolutions with gaps, weights of norm 1 times a gain, any length."""
    keras, layers, ops = keras_modules()

    class Normed(layers.Layer):
        def __init__(self, filters, gap):
            super().__init__()
            self.filters, self.gap = filters, gap

        def build(self, shape):
            self.kernel = self.add_weight(shape=(3, shape[-1], self.filters))
            self.gain = self.add_weight(shape=(self.filters,), initializer="ones")
            self.bias = self.add_weight(shape=(self.filters,), initializer="zeros")

        def call(self, x):
            norm = ops.sqrt(ops.sum(ops.square(self.kernel), axis=(0, 1)))
            x = ops.pad(x, [[0, 0], [2 * self.gap, 0], [0, 0]])
            kernel = self.gain * self.kernel / norm
            return (
                ops.conv(x, kernel, padding="valid", dilation_rate=self.gap) + self.bias
            )

    inputs = keras.Input((None, 2))
    x = inputs
    for gap in (1, 2, 4):
        y = ops.relu(Normed(_WIDTH, gap)(x))
        y = ops.relu(Normed(_WIDTH, gap)(y))
        x = ops.relu(y + layers.Conv1D(_WIDTH, 1)(x))
    model = keras.Model(inputs, layers.Dense(1)(x[:, -1]))
    return Training(model, numbers(20, 2), numbers(1), "huber")


def set_transformer() -> Training:
    """Sets: attention through trained points, and a pool by a trained seed."""
    keras, layers, ops = keras_modules()

    class Points(layers.Layer):
        def __init__(self, count):
            super().__init__()
            self.count = count

        def build(self, shape):
            self.points = self.add_weight(shape=(1, self.count, _WIDTH))

        def call(self, x):
            return ops.tile(self.points, (ops.shape(x)[0], 1, 1))

    def attend(query, others):
        x = layers.LayerNormalization()(
            query + layers.MultiHeadAttention(2, 4)(query, others)
        )
        y = layers.Dense(_WIDTH, activation="relu")(x)
        return layers.LayerNormalization()(x + y)

    inputs = keras.Input((None, 3))
    x = layers.Dense(_WIDTH)(inputs)
    x = attend(x, attend(Points(4)(x), x))
    x = layers.Flatten()(attend(Points(1)(x), x))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(9, 3))


def autoregressive_flow() -> Training:
    """MAF: masked layers, turned around between two steps; the density is the loss."""
    keras, layers, ops = keras_modules()
    size, hidden = 4, 12

    class Masked(layers.Layer):
        def __init__(self, mask):
            super().__init__()
            self.mask = mask.astype(np.float32)

        def build(self, shape):
            self.kernel = self.add_weight(shape=self.mask.shape)
            self.bias = self.add_weight(shape=self.mask.shape[1:], initializer="zeros")

        def call(self, x):
            return ops.matmul(x, self.kernel * self.mask) + self.bias

    def step(x):
        degrees = np.arange(hidden) % (size - 1) + 1
        into = np.arange(1, size + 1)[:, None] <= degrees
        out = np.tile(degrees[:, None] < np.arange(1, size + 1), (1, 2))
        mean, log_scale = ops.split(Masked(out)(ops.tanh(Masked(into)(x))), 2, axis=-1)
        log_scale = ops.tanh(log_scale)
        return (x - mean) * ops.exp(-log_scale), -ops.sum(log_scale, axis=-1)

    inputs = keras.Input((size,))
    z, volume = step(inputs)
    z, further = step(ops.flip(z, axis=-1))
    density = volume + further - 0.5 * ops.sum(ops.square(z), axis=-1)
    model = keras.Model(inputs, density)
    return Training(model, numbers(size), numbers(1), lambda y, found: -found)


def own_negatives() -> Training:
    """Contrastive: each row brings an anchor, its match and six that do not match."""
    keras, layers, ops = keras_modules()
    encoder = keras.Sequential(
        [
            layers.Conv1D(8, 3, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(8),
            layers.UnitNormalization(),
        ]
    )
    anchor, others = keras.Input((10, 3)), keras.Input((7, 10, 3))
    found = layers.TimeDistributed(encoder)(others)
    similar = ops.einsum("bd,bnd->bn", encoder(anchor), found) / 0.1
    x = (numbers(10, 3), numbers(7, 10, 3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Training(keras.Model([anchor, others], similar), x, labels(1), loss)


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, "architecture", build, remark)


CASES = [
    _case("U-ViT", u_vit),
    _case("RetNet", retention),
    _case("Mamba, `ops.scan`", selective_states),
    _case("MaxViT", max_vit),
    _case("deformable convolution", deformable),
    _case("DLRM", recommendation),
    _case("NeuMF", neural_factors),
    _case("TCN, weight normalisation, any length", temporal_convolutions),
    _case("Set Transformer", set_transformer),
    _case("masked autoregressive flow", autoregressive_flow),
    _case("contrastive, a row brings its own negatives", own_negatives),
]
