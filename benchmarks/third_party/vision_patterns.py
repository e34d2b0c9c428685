"""More models of images and videos in the style of keras.io's examples."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.third_party.case import (
    Case,
    Training,
    cross_entropy,
    labels,
    numbers,
    tokens,
)
from benchmarks.third_party.keras_io import classification, encoder_block, keras_modules

_IMAGE = (16, 16, 3)
_GROUPS = "GroupNormalization for BatchNormalization"


def _patches(layers, x, size: int, width: int):
    x = layers.Conv2D(width, size, strides=size)(x)
    return layers.Reshape((-1, width))(x)


def external_attention() -> Training:
    """EANet: attention with a memory, normalised along both axes."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = _patches(layers, inputs, 4, 16)
    y = layers.LayerNormalization()(x)
    y = layers.Reshape((16, 2, 8))(layers.Dense(16)(y))
    y = ops.transpose(y, (0, 2, 1, 3))
    y = ops.softmax(layers.Dense(12)(y), axis=2)
    y = y / (1e-9 + ops.sum(y, axis=-1, keepdims=True))
    y = ops.transpose(layers.Dense(8)(y), (0, 2, 1, 3))
    x = x + layers.Dense(16)(layers.Reshape((16, 16))(y))
    x = layers.GlobalAveragePooling1D()(x)
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def small_data_vit() -> Training:
    """Shifted patches, and attention with a trained temperature without the diagonal."""
    keras, layers, ops = keras_modules()

    class Local(layers.Layer):
        def __init__(self):
            super().__init__()
            self.qkv = layers.Dense(48)
            self.out = layers.Dense(16)

        def build(self, shape):
            self.temperature = self.add_weight(shape=(), initializer="ones")
            self.qkv.build(shape)
            self.out.build(shape)

        def call(self, x):
            time = x.shape[1]
            q, k, v = ops.split(self.qkv(x), 3, axis=-1)
            scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) * self.temperature
            scores = ops.where(ops.eye(time, dtype="bool"), -1e9, scores)
            return self.out(ops.matmul(ops.softmax(scores), v))

    inputs = keras.Input(_IMAGE)
    shifted = [ops.roll(inputs, shift, axis=(1, 2)) for shift in ((2, 2), (-2, -2))]
    x = _patches(layers, ops.concatenate([inputs, *shifted], axis=-1), 4, 16)
    x = x + Local()(layers.LayerNormalization()(x))
    x = layers.Dense(4)(layers.Flatten()(x))
    return classification(keras.Model(inputs, x), numbers(*_IMAGE))


def class_attention() -> Training:
    """CaiT: layer scales, talking heads, and attention of the class token alone."""
    keras, layers, ops = keras_modules()

    class Token(layers.Layer):
        def build(self, shape):
            self.token = self.add_weight(shape=(1, 1, shape[-1]), name="token")

        def call(self, x):
            return ops.repeat(self.token, ops.shape(x)[0], axis=0)

    class Scale(layers.Layer):
        def build(self, shape):
            self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.gamma

    class TalkingHeads(layers.Layer):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (
                layers.EinsumDense("btd,dhe->bhte", (2, 16, 8)) for _ in range(3)
            )
            self.before, self.behind, self.out = (
                layers.Dense(2),
                layers.Dense(2),
                layers.Dense(16),
            )

        def call(self, x):
            scores = ops.einsum("bhte,bhse->btsh", self.q(x), self.k(x))
            scores = self.behind(ops.softmax(self.before(scores), axis=2))
            y = ops.einsum("btsh,bhse->bthe", scores, self.v(x))
            return self.out(ops.reshape(y, (-1, x.shape[1], 16)))

    inputs = keras.Input(_IMAGE)
    x = _patches(layers, inputs, 4, 16)
    x = x + Scale()(TalkingHeads()(layers.LayerNormalization()(x)))
    token = Token()(x)
    both = ops.concatenate([token, x], axis=1)
    token = token + Scale()(layers.MultiHeadAttention(2, 8)(token, both))
    return classification(
        keras.Model(inputs, layers.Dense(4)(token[:, 0])), numbers(*_IMAGE)
    )


def focal_modulation() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(16, 4, strides=4)(inputs)
    q, context, gates = ops.split(layers.Dense(35)(x), [16, 32], axis=-1)
    total = 0.0
    for level in range(2):
        context = layers.DepthwiseConv2D(3, padding="same", activation="gelu")(context)
        total = total + context * gates[..., level : level + 1]
    mean = ops.gelu(ops.mean(context, axis=(1, 2), keepdims=True))
    total = total + mean * gates[..., 2:]
    x = x + layers.Dense(16)(q * layers.Conv2D(16, 1)(total))
    x = layers.GlobalAveragePooling2D()(layers.LayerNormalization()(x))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def token_learner() -> Training:
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = layers.Conv2D(16, 4, strides=4)(inputs)
    maps = layers.LayerNormalization()(x)
    for activation in ("gelu", "gelu", "sigmoid"):
        maps = layers.Conv2D(4, 3, padding="same", activation=activation)(maps)
    maps = ops.transpose(layers.Reshape((-1, 4))(maps), (0, 2, 1))[..., None]
    x = ops.mean(maps * layers.Reshape((1, -1, 16))(x), axis=2)
    x = layers.GlobalAveragePooling1D()(encoder_block(layers, x, 16))
    return classification(keras.Model(inputs, layers.Dense(4)(x)), numbers(*_IMAGE))


def deeplab() -> Training:
    """DeepLabV3+: a pyramid of dilations, of one place, and a decoder."""
    keras, layers, _ = keras_modules()

    def block(x, width=8, kernel=3, rate=1):
        x = layers.Conv2D(
            width, kernel, dilation_rate=rate, padding="same", use_bias=False
        )(x)
        return layers.ReLU()(layers.GroupNormalization(4)(x))

    inputs = keras.Input(_IMAGE)
    low = block(inputs)
    x = block(layers.MaxPooling2D(4)(low))
    pooled = layers.AveragePooling2D(4)(x)
    pooled = layers.UpSampling2D(4, interpolation="bilinear")(block(pooled, kernel=1))
    x = layers.Concatenate()([pooled, *(block(x, rate=rate) for rate in (1, 2, 3))])
    x = layers.UpSampling2D(4, interpolation="bilinear")(block(x, kernel=1))
    x = block(layers.Concatenate()([x, block(low, kernel=1)]))
    model = keras.Model(inputs, layers.Conv2D(3, 1)(x))
    return Training(model, numbers(*_IMAGE), labels(3, 16, 16), cross_entropy())


def xception_unet() -> Training:
    """keras.io's segmentation of pets: separable convolutions and residuals."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input(_IMAGE)
    x = former = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(
        inputs
    )
    for width in (8, 12):
        x = layers.ReLU()(x)
        x = layers.GroupNormalization(4)(
            layers.SeparableConv2D(width, 3, padding="same")(x)
        )
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        former = x = x + layers.Conv2D(width, 1, strides=2, padding="same")(former)
    for width in (12, 8, 8):
        x = layers.ReLU()(x)
        x = layers.GroupNormalization(4)(
            layers.Conv2DTranspose(width, 3, padding="same")(x)
        )
        x = layers.UpSampling2D(2)(x)
        former = x = x + layers.Conv2D(width, 1, padding="same")(
            layers.UpSampling2D(2)(former)
        )
    model = keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x))
    return Training(model, numbers(*_IMAGE), labels(3, 16, 16), cross_entropy())


def captions() -> Training:
    """A convolutional network whose places are read by a decoder of text."""
    keras, layers, ops = keras_modules()
    image = keras.Input(_IMAGE)
    words = keras.Input((10,), dtype="int32")
    places = layers.Conv2D(16, 4, strides=4, activation="relu")(image)
    places = layers.Dense(16, activation="relu")(layers.Reshape((-1, 16))(places))
    x = layers.Embedding(40, 16, mask_zero=True)(words) * ops.sqrt(16.0)
    x = x + layers.Embedding(10, 16)(ops.arange(10))
    x = layers.LayerNormalization()(
        x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    )
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, places))
    model = keras.Model([image, words], layers.Dense(40)(x))
    return Training(
        model, (numbers(*_IMAGE), tokens(40, 10)), labels(40, 10), cross_entropy()
    )


def captcha() -> Training:
    """Convolutions, then a recurrent network along the width, and CTC."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((24, 8, 1))
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    x = layers.Reshape((12, 32))(layers.MaxPooling2D(2)(x))
    x = layers.Dense(16, activation="relu")(x)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    model = keras.Model(inputs, layers.Dense(8)(x))
    return Training(model, numbers(24, 8, 1), 1 + labels(7, 4), keras.losses.CTC())


def pixel_cnn() -> Training:
    """Filters that are masked, so that a pixel does not see those behind it."""
    keras, layers, ops = keras_modules()

    class Masked(layers.Layer):
        def __init__(self, width):
            super().__init__()
            self.width = width

        def build(self, shape):
            self.kernel = self.add_weight(
                shape=(3, 3, shape[-1], self.width), name="kernel"
            )
            rows = [[1.0] * 3, [1.0, 1.0, 0.0], [0.0] * 3]
            self.mask = ops.reshape(ops.convert_to_tensor(rows), (3, 3, 1, 1))

        def call(self, x):
            return ops.conv(x, self.kernel * self.mask, padding="same")

    inputs = keras.Input((12, 12, 1))
    x = ops.relu(Masked(8)(inputs))
    x = x + layers.Conv2D(8, 1)(ops.relu(Masked(8)(x)))
    model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
    return Training(
        model, numbers(12, 12, 1), labels(2, 12, 12, 1), "binary_crossentropy"
    )


def film() -> Training:
    """Features of one input scale and shift the channels of another."""
    keras, layers, _ = keras_modules()
    image, condition = keras.Input(_IMAGE), keras.Input((5,))
    x = layers.Conv2D(8, 3, padding="same")(image)
    gamma, beta = layers.Dense(8)(condition), layers.Dense(8)(condition)
    x = layers.ReLU()(x * gamma[:, None, None] + beta[:, None, None])
    x = layers.Dense(4)(layers.GlobalAveragePooling2D()(x))
    model = keras.Model([image, condition], x)
    return classification(model, (numbers(*_IMAGE), numbers(5)))


def standardised() -> Training:
    """Weight standardisation by hand, and a Dense layer over it."""
    keras, layers, ops = keras_modules()

    class Standardised(layers.Conv2D):
        def call(self, x):
            mean = ops.mean(self.kernel, axis=(0, 1, 2), keepdims=True)
            spread = ops.std(self.kernel, axis=(0, 1, 2), keepdims=True)
            kernel = (self.kernel - mean) / (spread + 1e-5)
            return ops.conv(x, kernel, padding="same") + self.bias

    inputs = keras.Input(_IMAGE)
    x = inputs
    for width in (8, 8):
        x = ops.relu(layers.GroupNormalization(4)(Standardised(width, 3)(x)))
    x = layers.Dense(4)(layers.GlobalAveragePooling2D()(x))
    return classification(keras.Model(inputs, x), numbers(*_IMAGE))


def detector() -> Training:
    """Two levels of a pyramid, boxes and classes, with a focal loss."""
    keras, layers, ops = keras_modules()
    inputs = keras.Input(_IMAGE)
    first = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inputs)
    second = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(first)
    first = layers.Conv2D(8, 1)(first) + layers.UpSampling2D(2)(second)
    head = layers.Conv2D(8, 3, padding="same", activation="relu")
    boxes, classes = (
        layers.Conv2D(4, 3, padding="same"),
        layers.Conv2D(3, 3, padding="same"),
    )

    def of_all(layer, width):
        return ops.concatenate(
            [layers.Reshape((-1, width))(layer(head(x))) for x in (first, second)],
            axis=1,
        )

    model = keras.Model(
        inputs, {"boxes": of_all(boxes, 4), "classes": of_all(classes, 3)}
    )
    y = {"boxes": numbers(80, 4), "classes": labels(2, 80, 3).astype("float32")}
    loss = {
        "boxes": keras.losses.Huber(),
        "classes": keras.losses.BinaryFocalCrossentropy(from_logits=True),
    }
    return Training(model, numbers(*_IMAGE), y, loss)


def video_3d() -> Training:
    """(2 + 1)-dimensional convolutions with residuals."""
    keras, layers, _ = keras_modules()
    inputs = keras.Input((6, 12, 12, 1))
    x = layers.Conv3D(4, (1, 3, 3), padding="same")(inputs)
    x = layers.Conv3D(4, (3, 1, 1), padding="same")(x)
    x = layers.ReLU()(layers.GroupNormalization(2)(x))
    x = layers.AveragePooling3D((1, 2, 2))(x)
    x = x + layers.Conv3D(4, (3, 3, 3), padding="same", activation="relu")(x)
    x = layers.Dense(4)(layers.GlobalAveragePooling3D()(x))
    return classification(keras.Model(inputs, x), numbers(6, 12, 12, 1))


def _case(name: str, build: Callable, remark: str = "") -> Case:
    return Case(name, "keras.io pattern", build, remark)


CASES = [
    _case("external attention (EANet)", external_attention),
    _case("vision transformer for small data", small_data_vit),
    _case("class attention (CaiT)", class_attention),
    _case("focal modulation", focal_modulation),
    _case("TokenLearner", token_learner),
    _case("DeepLabV3+", deeplab, _GROUPS),
    _case("segmentation, separable convolutions", xception_unet, _GROUPS),
    _case("image captions", captions),
    _case("captcha, CTC", captcha),
    _case("PixelCNN", pixel_cnn),
    _case("FiLM", film),
    _case("weight standardisation", standardised),
    _case("detector with a pyramid, focal loss", detector),
    _case("video, (2 + 1)D convolutions", video_3d, _GROUPS),
]
