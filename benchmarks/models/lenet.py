"""LeNet-5, as in Xiang et al. (2021), Table 1 (61,706 parameters for MNIST)."""

import keras
from keras import layers


def lenet(
    input_shape: tuple[int, ...] = (28, 28, 1), classes: int = 10, scale: float = 1.0
) -> keras.Model:
    """LeNet-5 with ReLU and max pooling; the first convolution pads to 32 x 32."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(1.0 / scale),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(classes),
        ],
        name="lenet",
    )
