"""The CNN of TF-Privacy's MNIST tutorial (26,010 parameters)."""

import keras
from keras import layers


def mnist_cnn(
    input_shape: tuple[int, ...] = (28, 28, 1), classes: int = 10, scale: float = 1.0
) -> keras.Model:
    """Two convolutions and two dense layers; also used by Amian and Nasr et al."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(1.0 / scale),
            layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
            layers.MaxPooling2D(2, 1),
            layers.Conv2D(32, 4, strides=2, activation="relu"),
            layers.MaxPooling2D(2, 1),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(classes),
        ],
        name="mnist_cnn",
    )
