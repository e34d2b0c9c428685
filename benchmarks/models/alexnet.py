"""AlexNet with kernels of size 3, as in Xiang et al. (2021), section 6.1."""

import keras
from keras import layers


def alexnet(
    input_shape: tuple[int, ...] = (32, 32, 3),
    classes: int = 10,
    width: int = 64,
    scale: float = 1.0,
) -> keras.Model:
    """Five convolutions with kernels of 3 x 3 and three dense layers.

    The paper gives no more than the kernel size; channels follow AlexNet's
    proportions for images of 32 x 32.

    Args:
        input_shape: Shape of an image.
        classes: Number of classes.
        width: Channels of the first convolution.
        scale: Greatest value of a pixel.
    """

    def convolution(channels: int) -> layers.Layer:
        return layers.Conv2D(channels, 3, padding="same", activation="relu")

    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(1.0 / scale),
            convolution(width),
            layers.MaxPooling2D(2),
            convolution(3 * width),
            layers.MaxPooling2D(2),
            convolution(6 * width),
            convolution(4 * width),
            convolution(4 * width),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(8 * width, activation="relu"),
            layers.Dense(8 * width, activation="relu"),
            layers.Dense(classes),
        ],
        name="alexnet",
    )
