"""More models of tables, text, series and sounds in the style of keras.io's examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.third_party.case import (
    Case,
    Training,
    cross_entropy,
    generator,
    labels,
    numbers,
    tokens,
)
from benchmarks.third_party.keras_io import classification, encoder_block, keras_modules


def cross_network() -> Training:
    """Deep and cross: each layer multiplies by the input again."""
    keras, layers, ops = keras_modules()
    numeric, category = keras.Input((6,)), keras.Input((), dtype="int32")
    start = x = ops.concatenate([numeric, layers.Embedding(9, 4)(category)], axis=-1)
    for _ in range(2):
        x = start * layers.Dense(10)(x) + x
    deep = layers.Dense(8, activation="relu")(start)
    outputs = layers.Dense(1, activation="sigmoid")(ops.concatenate([x, deep], -1))
    model = keras.Model([numeric, category], outputs)
    x = (numbers(6), tokens(9))
    return Training(model, x, labels(2)[:, None], "binary_crossentropy")


def decision_forest() -> Training:
    """Neural decision trees: routes as products, a class table at the leaves."""
    keras, layers, ops = keras_modules()

    class Tree(layers.Layer):
        def __init__(self, seed):
            super().__init__()
            chosen = np.random.default_rng(seed).permutation(8)[:6]
            self.features = ops.convert_to_tensor(np.eye(8, dtype="float32")[chosen])
            self.decide = layers.Dense(4, activation="sigmoid")

        def build(self, shape):
            self.pi = self.add_weight(shape=(4, 3), initializer="random_normal")
            self.decide.build((None, 6))

        def call(self, x):
            decisions = self.decide(ops.matmul(x, ops.transpose(self.features)))
            decisions = ops.expand_dims(decisions, 2)
            decisions = ops.concatenate([decisions, 1 - decisions], axis=2)
            mu = ops.ones((ops.shape(x)[0], 1, 1))
            begin, end = 1, 2
            for level in range(2):
                mu = ops.reshape(mu, (-1, 2**level, 1))
                mu = ops.tile(mu, (1, 1, 2))
                mu = mu * decisions[:, begin:end, :]
                begin, end = end, end + 2 ** (level + 1)
            mu = ops.reshape(mu, (-1, 4))
            return ops.matmul(mu, ops.softmax(self.pi))

    inputs = keras.Input((8,))
    x = layers.LayerNormalization()(inputs)
    outputs = sum(Tree(seed)(x) for seed in range(2)) / 2
    model = keras.Model(inputs, outputs)
    return Training(model, numbers(8), labels(3), "sparse_categorical_crossentropy")


def behaviour_sequence() -> Training:
    """Films that were seen, with their ratings, by a transformer; a rating of the next."""
    keras, layers, ops = keras_modules()
    films = keras.Input((5,), dtype="int32")
    ratings = keras.Input((5,))
    target = keras.Input((1,), dtype="int32")
    table = layers.Embedding(30, 8)
    seen = table(films) + layers.Embedding(5, 8)(ops.arange(5))
    seen = seen * ratings[..., None]
    x = ops.concatenate([seen, table(target)], axis=1)
    y = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.Flatten()(layers.LeakyReLU()(layers.LayerNormalization()(x + y)))
    model = keras.Model([films, ratings, target], layers.Dense(1)(x))
    x = (tokens(30, 5), np.abs(numbers(5)), tokens(30, 1))
    return Training(model, x, numbers(1), "mse")


def two_towers() -> Training:
    """A pair that was chosen and one that was not, compared for each user."""
    keras, layers, ops = keras_modules()
    user, chosen, other = (keras.Input((), dtype="int32") for _ in range(3))
    table = layers.Embedding(40, 8)
    u = layers.Dense(8)(layers.Embedding(20, 8)(user))
    item = layers.Dense(8, activation="relu")
    better = ops.sum(u * (item(table(chosen)) - item(table(other))), axis=-1)
    model = keras.Model([user, chosen, other], better)

    def loss(y, difference):
        return ops.softplus(-difference)

    return Training(model, (tokens(20), tokens(40), tokens(40)[::-1]), labels(2), loss)


def triplets() -> Training:
    """Three images through one network, with a margin."""
    keras, layers, ops = keras_modules()
    network = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(8),
            layers.UnitNormalization(),
        ]
    )
    images = [keras.Input((12, 12, 1)) for _ in range(3)]
    anchor, same, other = map(network, images)
    near = ops.sum(ops.square(anchor - same), axis=-1)
    far = ops.sum(ops.square(anchor - other), axis=-1)
    model = keras.Model(images, ops.stack([near, far], axis=1))

    def loss(y, distances):
        return ops.relu(distances[:, 0] - distances[:, 1] + 0.5)

    x = tuple(
        generator().normal(size=(16, 12, 12, 1)).astype("float32") * s
        for s in (1, 2, 3)
    )
    return Training(model, x, labels(2), loss)


def real_nvp() -> Training:
    """A normalising flow: the loss is the log-density that the model returns."""
    keras, layers, ops = keras_modules()
    inputs = x = keras.Input((4,))
    log_density = 0.0
    for number in range(3):
        mask = ops.cast([1, 1, 0, 0] if number % 2 else [0, 0, 1, 1], "float32")
        kept = x * mask
        hidden = layers.Dense(8, activation="relu")(kept)
        scale = layers.Dense(4, activation="tanh")(hidden) * (1 - mask)
        shift = layers.Dense(4)(hidden) * (1 - mask)
        x = kept + (1 - mask) * (x * ops.exp(scale) + shift)
        log_density = log_density + ops.sum(scale, axis=-1)
    log_density = log_density - 0.5 * ops.sum(ops.square(x), axis=-1)
    model = keras.Model(inputs, log_density)
    return Training(model, numbers(4), labels(2), lambda y, found: -found)


def mixture_density() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input((3,))
    x = layers.Dense(8, activation="tanh")(inputs)
    model = keras.Model(inputs, layers.Dense(9)(x))

    def loss(y, outputs):
        weights, means, widths = ops.split(outputs, 3, axis=-1)
        widths = ops.softplus(widths) + 1e-2
        inside = -0.5 * ops.square((y - means) / widths) - ops.log(widths)
        return -ops.logsumexp(ops.log_softmax(weights) + inside, axis=-1)

    return Training(model, numbers(3), numbers(1), loss)


def quantiles() -> Training:
    """Three quantiles of a series from a stack of cells, by the pinball loss."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input((12, 3))
    cells = [layers.LSTMCell(6), layers.GRUCell(5)]
    x = layers.RNN(layers.StackedRNNCells(cells))(inputs)
    model = keras.Model(inputs, layers.Dense(3)(x))
    levels = np.array([0.1, 0.5, 0.9], "float32")

    def loss(y, found):
        return ops.mean(
            ops.maximum(levels * (y - found), (levels - 1) * (y - found)), -1
        )

    return Training(model, numbers(12, 3), numbers(1), loss)


def traffic() -> Training:
    """A convolution over a fixed graph of roads, then an LSTM for each road."""
    keras, layers, ops = keras_modules()
    roads, time = 5, 6
    near = np.float32(generator().random((roads, roads)) < 0.5)
    inputs = keras.Input((time, roads))
    x = inputs[..., None]
    x = ops.einsum("ij,btjf->btif", near, layers.Dense(4)(x))
    x = ops.transpose(ops.relu(x), (0, 2, 1, 3))
    x = ops.reshape(x, (-1, time, 4))
    x = layers.Dense(2)(layers.LSTM(6)(x))
    model = keras.Model(inputs, ops.reshape(x, (-1, roads, 2)))
    return Training(model, numbers(time, roads), numbers(roads, 2), "mse")


def time2vec() -> Training:
    """Time as waves with trained frequencies, then a transformer."""
    keras, layers, ops = keras_modules()

    class Waves(layers.Layer):
        def build(self, shape):
            self.slope = self.add_weight(shape=(shape[1],), name="slope")
            self.frequency = self.add_weight(shape=(shape[1], 3), name="frequency")

        def call(self, x):
            mean = ops.mean(x, axis=-1)
            waves = ops.sin(mean[..., None] * self.frequency)
            return ops.concatenate([(mean * self.slope)[..., None], waves], axis=-1)

    inputs = keras.Input((10, 4))
    x = ops.concatenate([inputs, Waves()(inputs)], axis=-1)
    x = layers.GlobalAveragePooling1D()(encoder_block(layers, x, 8))
    return Training(
        keras.Model(inputs, layers.Dense(1)(x)), numbers(10, 4), numbers(1), "mse"
    )


def speakers() -> Training:
    """Residual convolutions over sound."""
    keras, layers, _ = keras_modules()
    inputs = x = keras.Input((64, 1))
    for width in (4, 8):
        shortcut = layers.Conv1D(width, 1, padding="same")(x)
        x = layers.Conv1D(width, 3, padding="same", activation="relu")(x)
        x = layers.Conv1D(width, 3, padding="same")(x)
        x = layers.ReLU()(x + shortcut)
        x = layers.MaxPooling1D(2)(x)
    x = layers.Flatten()(layers.AveragePooling1D(3, strides=3)(x))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(64, 1))


def eeg() -> Training:
    """Separable and depthwise convolutions over channels, with squeeze and excitation."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((6, 32, 1))
    x = layers.Conv2D(4, (1, 8), padding="same", use_bias=False)(inputs)
    x = layers.DepthwiseConv2D((6, 1), depth_multiplier=2, use_bias=False)(x)
    x = layers.ELU()(layers.GroupNormalization(4)(x))
    x = layers.SeparableConv2D(8, (1, 4), padding="same")(
        layers.AveragePooling2D((1, 4))(x)
    )
    gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = x * layers.Dense(8, activation="sigmoid")(
        layers.Dense(4, activation="silu")(gate)
    )
    return classification(
        keras.Model(inputs, layers.Dense(4)(layers.Flatten()(x))), numbers(6, 32, 1)
    )


def additive_attention() -> Training:
    """Bahdanau's attention between two recurrent networks."""
    keras, layers, ops = keras_modules()
    source, target = (keras.Input((8,), dtype="int32") for _ in range(2))
    encoded, state = layers.GRU(8, return_sequences=True, return_state=True)(
        layers.Embedding(30, 8)(source)
    )
    x = layers.GRU(8, return_sequences=True)(
        layers.Embedding(30, 8)(target), initial_state=state
    )
    x = ops.concatenate([x, layers.AdditiveAttention()([x, encoded])], axis=-1)
    model = keras.Model([source, target], layers.Dense(30)(x))
    return Training(
        model, (tokens(30, 8), tokens(30, 8)), labels(30, 8), cross_entropy()
    )


def modern_decoder() -> Training:
    """RMS normalisation, grouped queries, SwiGLU, tied embeddings."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input((12,), dtype="int32")
    table = layers.Embedding(40, 16)
    x = table(inputs)
    y = layers.RMSNormalization()(x)
    x = x + layers.GroupQueryAttention(8, 4, 2)(y, y, use_causal_mask=True)
    y = layers.RMSNormalization()(x)
    x = x + layers.Dense(16)(
        layers.Dense(32, activation="silu")(y) * layers.Dense(32)(y)
    )

    class Tied(layers.Layer):
        def call(self, x):
            return ops.matmul(x, ops.transpose(table.embeddings))

    model = keras.Model(inputs, Tied()(x))
    return Training(model, tokens(40, 12), labels(40, 12), cross_entropy())


def preprocessed_table() -> Training:
    """Normalised, cut into bins, hashed and crossed inside of the model."""
    keras, layers, ops = keras_modules()
    age, kind, place = (
        keras.Input((1,)),
        keras.Input((1,), dtype="int32"),
        keras.Input((1,), dtype="int32"),
    )
    normal = layers.Normalization(mean=0.0, variance=1.0)(age)
    bins = layers.Discretization(
        bin_boundaries=[-1.0, 0.0, 1.0], output_mode="one_hot"
    )(age)
    hashed = layers.Hashing(8, output_mode="one_hot")(kind)
    crossed = layers.HashedCrossing(16, output_mode="one_hot")((kind, place))
    known = layers.IntegerLookup(vocabulary=[1, 2, 3], output_mode="one_hot")(place)
    x = ops.concatenate([normal, bins, hashed, crossed, known], axis=-1)
    model = keras.Model([age, kind, place], layers.Dense(1)(layers.Dense(8, "relu")(x)))
    return Training(model, (numbers(1), tokens(9, 1), tokens(5, 1)), numbers(1), "mse")


def masked_series() -> Training:
    """Series of different lengths behind a masking layer, in both directions."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((None, 3))
    x = layers.Masking()(inputs)
    x = layers.Bidirectional(layers.LSTM(5, return_sequences=True, activation="silu"))(
        x
    )
    x = layers.GRU(4, go_backwards=True)(x)
    data = numbers(10, 3)
    for row in range(16):
        data[row, 4 + row % 6 :] = 0
    return classification(keras.Model(inputs, layers.Dense(4)(x)), data)


def gated_cnn() -> Training:
    """Language model of gated causal convolutions with weight normalisation."""
    keras, layers, ops = keras_modules()

    class Normalised(layers.Layer):
        def __init__(self, width):
            super().__init__()
            self.width = width

        def build(self, shape):
            self.v = self.add_weight(shape=(3, shape[-1], self.width), name="v")
            self.g = self.add_weight(shape=(self.width,), initializer="ones", name="g")

        def call(self, x):
            norm = ops.sqrt(ops.sum(ops.square(self.v), axis=(0, 1)))
            return ops.conv(
                ops.pad(x, ((0, 0), (2, 0), (0, 0))), self.v * (self.g / norm)
            )

    inputs = keras.Input((12,), dtype="int32")
    x = layers.Embedding(40, 8)(inputs)
    for _ in range(2):
        value, gate = ops.split(Normalised(16)(x), 2, axis=-1)
        x = x + value * ops.sigmoid(gate)
    model = keras.Model(inputs, layers.Dense(40)(x))
    return Training(model, tokens(40, 12), labels(40, 12), cross_entropy())


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, "keras.io pattern", build, remark)


CASES = [
    _case("deep and cross network", cross_network),
    _case("neural decision forest", decision_forest),
    _case("behaviour sequence transformer", behaviour_sequence),
    _case("two towers, pairwise ranking", two_towers),
    _case("triplets with a margin", triplets),
    _case("RealNVP", real_nvp),
    _case("mixture density network", mixture_density),
    _case("quantiles of a series, stacked cells", quantiles),
    _case("traffic, graph convolution and LSTM", traffic),
    _case("Time2Vec and a transformer", time2vec),
    _case("speakers, residual Conv1D", speakers),
    _case(
        "EEG, depthwise and squeeze", eeg, "GroupNormalization for BatchNormalization"
    ),
    _case("translation, additive attention", additive_attention),
    _case("decoder with RMS, grouped queries, SwiGLU", modern_decoder),
    _case("table preprocessed in the model", preprocessed_table),
    _case("series of different lengths, masked LSTM", masked_series),
    _case("gated convolutions, weight normalisation", gated_cnn),
]
