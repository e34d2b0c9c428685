"""Models that nobody chose: layers, widths, activations, initialisers at random."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.models.wide_resnet import StandardizedConv2D

L = keras.layers

ACTIVATIONS = ["relu", "gelu", "swish", "tanh", "sigmoid", "elu", "softmax", "linear"]
INITIALIZERS = ["glorot_uniform", "he_normal", "zeros", "orthogonal", "lecun_normal"]


class WeightNormalizedDense(L.Layer):
    """Direction and length of each column by themselves."""

    def __init__(self, units):
        super().__init__()
        self.units = units

    def build(self, shape):
        self.v = self.add_weight(shape=(shape[-1], self.units), name="v")
        self.g = self.add_weight(shape=(self.units,), initializer="ones", name="g")

    def call(self, x):
        norm = keras.ops.sqrt(keras.ops.sum(keras.ops.square(self.v), axis=0) + 1e-6)
        return keras.ops.matmul(x, self.v * (self.g / norm))


class Gain(L.Layer):
    """A factor that makes gradients tiny or huge."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        return x * self.factor


def random_model(seed: int) -> tuple[keras.Model, np.ndarray, np.ndarray, str]:
    """A model, inputs, labels and its loss; the same for the same seed."""
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    kind = rng.choice(["vector", "image", "sequence", "tokens"])
    batch = int(rng.integers(4, 9))
    if kind == "vector":
        x, layers = _vector(rng, batch)
    elif kind == "image":
        x, layers = _image(rng, batch)
    else:
        x, layers = _sequence(rng, batch, kind)
    if rng.random() < 0.15:
        layers.append(Gain(10.0 ** float(rng.choice([-12, -6, 6, 12]))))
    regression = rng.random() < 0.3
    layers.append(L.Dense(1 if regression else 3, **_kernel(rng, zeros=0.2)))
    dtype = x.dtype.name
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=dtype), *layers])
    if regression:
        return model, x, rng.normal(size=(batch, 1)).astype("float32"), "mse"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, x, rng.integers(0, 3, batch).astype("int32"), loss


def _kernel(rng, zeros=0.1):
    name = "zeros" if rng.random() < zeros else str(rng.choice(INITIALIZERS))
    return {"kernel_initializer": name, "use_bias": bool(rng.random() < 0.8)}


def _width(rng):
    return int(rng.choice([3, 4, 8, 12, 16]))


def _activation(rng):
    return L.Activation(str(rng.choice(ACTIVATIONS)))


def _vector(rng, batch):
    layers = []
    for _ in range(rng.integers(1, 5)):
        layers.append(
            rng.choice(
                [
                    L.Dense(_width(rng), **_kernel(rng)),
                    WeightNormalizedDense(_width(rng)),
                    L.LayerNormalization(),
                    L.UnitNormalization(),
                    L.Dropout(0.3),
                    L.PReLU(),
                ]
            )
        )
        layers.append(_activation(rng))
    scale = 10.0 ** float(rng.integers(-2, 3))
    return (scale * rng.normal(size=(batch, _width(rng)))).astype("float32"), layers


def _image(rng, batch):
    layers = []
    size = int(rng.choice([6, 8, 9]))
    for _ in range(rng.integers(1, 4)):
        width = int(rng.choice([4, 8]))
        layers.append(
            rng.choice(
                [
                    L.Conv2D(width, 3, padding="same", **_kernel(rng)),
                    StandardizedConv2D(width, 3, padding="same"),
                    L.Conv2D(width, 3, strides=2, padding="same", **_kernel(rng)),
                    L.DepthwiseConv2D(3, padding="same"),
                    L.SeparableConv2D(width, 3, padding="same"),
                    L.Conv2DTranspose(width, 2, **_kernel(rng)),
                ]
            )
        )
        if rng.random() < 0.5:
            layers.append(L.GroupNormalization(1))
        layers.append(_activation(rng))
    layers.append(rng.choice([L.Flatten(), L.GlobalAveragePooling2D()]))
    return rng.normal(size=(batch, size, size, 4)).astype("float32"), layers


def _sequence(rng, batch, kind):
    width, length = int(rng.choice([4, 8])), int(rng.choice([5, 6]))
    layers = []
    if kind == "tokens":
        x = rng.integers(0, 20, (batch, length)).astype("int32")
        layers.append(L.Embedding(20, width))
    else:
        x = rng.normal(size=(batch, length, width)).astype("float32")
    for _ in range(rng.integers(1, 3)):
        layers.append(
            rng.choice(
                [
                    Attention(2, width),
                    L.Conv1D(width, 3, padding="same", **_kernel(rng)),
                    L.Dense(width, **_kernel(rng)),
                    L.LayerNormalization(),
                    L.EinsumDense("btd,de->bte", (length, width), bias_axes="e"),
                ]
            )
        )
        layers.append(_activation(rng))
    layers.append(rng.choice([L.Flatten(), L.GlobalAveragePooling1D()]))
    return x, layers


class Attention(L.Layer):
    """Attends to itself; sharp attention saturates."""

    def __init__(self, heads, width):
        super().__init__()
        self.attention = L.MultiHeadAttention(heads, width)

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        return x + self.attention(10.0 * x, x)


def fit(model, x, y, loss, optimizer):
    """One step; the batch is dynamic, as it is in most pipelines."""
    model.compile(optimizer, loss, jit_compile=False)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x)), verbose=0)
