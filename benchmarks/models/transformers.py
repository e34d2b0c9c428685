"""Transformers of any depth: BERT-like, GPT-like, and for images."""

import keras
from keras import layers


class Positions(layers.Layer):
    """Adds a trained vector for each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, x):
        return x + self.table


def bert(
    depth: int, width: int = 128, length: int = 64, dropout: float = 0.0
) -> keras.Model:
    """An encoder of tokens with two classes, normalised behind every branch."""
    tokens = keras.Input([length], dtype="int32")
    x = Positions()(layers.Embedding(5000, width)(tokens))
    for _ in range(depth):
        attended = layers.MultiHeadAttention(4, width // 4, dropout=dropout)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        y = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(dropout)(y)]))
    return keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def gpt(depth: int, width: int = 128, length: int = 64) -> keras.Model:
    """A decoder of tokens with a class at its last position, normalised before."""
    tokens = keras.Input([length], dtype="int32")
    x = Positions()(layers.Embedding(5000, width)(tokens))
    for _ in range(depth):
        x = _block(x, width, use_causal_mask=True)
    x = layers.LayerNormalization()(x)
    return keras.Model(tokens, layers.Dense(2)(x[:, -1]))


def vit(depth: int = 8, width: int = 64, size: int = 72, patch: int = 6) -> keras.Model:
    """The vision transformer of keras.io's example, without augmentation."""
    images = keras.Input([size, size, 3])
    x = layers.Conv2D(width, patch, patch)(images)
    x = Positions()(layers.Reshape([-1, width])(x))
    for _ in range(depth):
        x = _block(x, width)
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras.Model(images, layers.Dense(10)(layers.Dense(256, "gelu")(x)))


def _block(x, width: int, **attention):
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(4, width // 4)(y, y, **attention)
    x = layers.Add()([x, y])
    y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dense(width)(y)])
