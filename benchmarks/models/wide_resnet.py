"""WideResNet with GroupNormalization, after De et al. (2022), as is usual for DP."""

import keras
from keras import layers, ops


@keras.saving.register_keras_serializable("benchmarks")
class StandardizedConv2D(layers.Conv2D):
    """A convolution whose kernel has mean 0 and variance 1 per output channel."""

    def convolution_op(self, inputs, kernel):
        mean = ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        variance = ops.var(kernel, axis=(0, 1, 2), keepdims=True)
        size = kernel.shape[0] * kernel.shape[1] * kernel.shape[2]
        kernel = (kernel - mean) * ops.rsqrt(ops.maximum(variance * size, 1e-4))
        return super().convolution_op(inputs, kernel)


def wide_resnet(
    depth: int = 16,
    width: int = 4,
    standardized: bool = False,
    input_shape: tuple[int, ...] = (32, 32, 3),
    classes: int = 10,
    activation: str = "relu",
) -> keras.Model:
    """WideResNet-`depth`-`width` whose normalisation does not mix examples.

    Args:
        depth: 10, 16, 28, ...
        width: How many times 16 channels the first stage has.
        standardized: Whether kernels are standardised.
        input_shape: Shape of an image.
        classes: Number of classes.
        activation: Of every layer.
    """
    convolution = StandardizedConv2D if standardized else layers.Conv2D
    inputs = keras.Input(input_shape)
    x = convolution(16, 3, padding="same")(inputs)
    for stage in range(3):
        for block in range((depth - 4) // 6):
            channels = 16 * width * 2**stage
            strides = 2 if stage and not block else 1
            y = _activated(x, activation)
            shortcut = x
            if x.shape[-1] != channels or strides > 1:
                shortcut = convolution(channels, 1, strides=strides)(y)
            y = convolution(channels, 3, strides=strides, padding="same")(y)
            y = convolution(channels, 3, padding="same")(_activated(y, activation))
            x = layers.Add()([shortcut, y])
    x = layers.GlobalAveragePooling2D()(_activated(x, activation))
    return keras.Model(inputs, layers.Dense(classes)(x))


def _activated(x, activation: str):
    x = layers.GroupNormalization(min(16, x.shape[-1]))(x)
    return layers.Activation(activation)(x)
