"""ResNet-18 for small images, with GroupNormalization, after Xiang et al. (2021)."""

import keras
from keras import layers


def resnet18(
    input_shape: tuple[int, ...] = (32, 32, 3),
    classes: int = 10,
    width: int = 64,
    scale: float = 1.0,
) -> keras.Model:
    """ResNet-18 whose normalisation does not mix examples.

    BatchNormalization computes statistics over the batch, so that one example
    changes the gradients of all others: no per-example bound holds. Groups of
    channels of the same example take its place.

    Args:
        input_shape: Shape of an image.
        classes: Number of classes.
        width: Channels of the first stage; 64 in the original.
        scale: Greatest value of a pixel.
    """
    inputs = keras.Input(input_shape)
    x = _convolution(layers.Rescaling(1.0 / scale)(inputs), width, 1)
    x = layers.ReLU()(x)
    for stage in range(4):
        for block in range(2):
            strides = 2 if stage > 0 and block == 0 else 1
            x = _basic_block(x, width * 2**stage, strides)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes)(x), name="resnet18")


def _basic_block(x, channels: int, strides: int):
    shortcut = x
    if strides != 1 or x.shape[-1] != channels:
        shortcut = _convolution(x, channels, strides, kernel_size=1)
    x = layers.ReLU()(_convolution(x, channels, strides))
    x = _convolution(x, channels, 1)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def _convolution(x, channels: int, strides: int, kernel_size: int = 3):
    x = layers.Conv2D(
        channels, kernel_size, strides=strides, padding="same", use_bias=False
    )(x)
    return layers.GroupNormalization(groups=min(32, channels // 2))(x)
