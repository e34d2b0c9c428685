"""Public features: what a model is given in place of the raw inputs, computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.data.layers.scattering import Scattering
from keras_dp_ext.data.sets.data_set import DataSet

_CHUNK = 128


def scattering(data: DataSet) -> DataSet:
    """Scattering coefficients of images, normalised within each image.

    81 of them (243 for colours) at 7 x 7 (8 x 8) places for 28 x 28 (32 x 32)
    pixels, normalised to mean 0 and variance 1 in 27 groups of channels of one
    image. No image sees another one, and nothing is learned: no privacy is spent.

    References:
        [Tramer and Boneh, 2021](https://arxiv.org/abs/2011.11660)
    """
    extract = keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Rescaling(1.0 / data.scale),
            Scattering(scales=2, angles=8),
            keras.layers.GroupNormalization(
                groups=27, epsilon=1e-5, center=False, scale=False
            ),
        ]
    )
    return dataclasses.replace(
        data,
        x_train=_in_chunks(extract, data.x_train),
        x_test=_in_chunks(extract, data.x_test),
        scale=1.0,
        note=f"{data.note}; scattering features",
    )


#: Features of models that do not take raw inputs.
FEATURES: dict[str, Callable[[DataSet], DataSet]] = {
    "scatter_linear": scattering,
    "scatter_cnn": scattering,
}


def with_features(model: str, data: DataSet) -> DataSet:
    """The data set as a model takes it.

    Args:
        model: Name of the model; names without features of their own take the data as
            it is.
        data: The data set, with raw inputs.

    Returns:
        The data set with the model's features as inputs.

    Raises:
        ValueError: If the features cannot be had of such data.
    """
    if model not in FEATURES:
        return data
    try:
        return FEATURES[model](data)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Model `{model}` needs features that data set `{data.name}` with inputs "
            f"of shape {data.x_train.shape[1:]} does not have: {error}"
        ) from error


def _in_chunks(extract: keras.Model, inputs: np.ndarray) -> np.ndarray:
    """The features of all inputs in half precision, which halves the memory."""

    @tf.function(jit_compile=True)  # A third of the time of single operations.
    def compiled(chunk: tf.Tensor) -> tf.Tensor:
        return tf.cast(extract(chunk, training=False), tf.float16)

    features = np.empty((len(inputs), *extract.output_shape[1:]), np.float16)
    for start in range(0, len(inputs), _CHUNK):
        chunk = inputs[start : start + _CHUNK]
        # One size, one compilation: the last chunk is filled up.
        filled = np.zeros((_CHUNK, *inputs.shape[1:]), inputs.dtype)
        filled[: len(chunk)] = chunk
        features[start : start + len(chunk)] = compiled(filled)[: len(chunk)]
    return features
