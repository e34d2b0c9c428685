"""Named models. Each takes a `DataSet` and returns a model that outputs logits."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from keras_dp_ext._own_code import import_own, is_own
from keras_dp_ext.data.layers.private_normalization import PrivateNormalization
from keras_dp_ext.data.layers.private_pca import PrivatePCA
from keras_dp_ext.data.sets.data_set import DataSet

layers = keras.layers

# Steps into which [0, 1] is divided.
_STEPS = 40


def tanh_cnn(data: DataSet) -> keras.Model:
    """TF-Privacy's convolutional network for MNIST, with bounded activations.

    26,010 parameters on 28 x 28 pixels. Tanh instead of ReLU keeps activations, and
    so gradients, from growing: less is lost in the clip.

    References:
        [Papernot et al., 2021](https://arxiv.org/abs/2007.14191)
    """
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Rescaling(2.0 / data.scale, offset=-1.0),
            layers.Conv2D(16, 8, strides=2, padding="same", activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Conv2D(32, 4, strides=2, activation="tanh"),
            layers.MaxPooling2D(2, strides=1),
            layers.Flatten(),
            layers.Dense(32, activation="tanh"),
            layers.Dense(data.num_classes),
        ]
    )


def small_cnn(data: DataSet) -> keras.Model:
    """One convolution, for images of 8 x 8 pixels."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Rescaling(2.0 / data.scale, offset=-1.0),
            layers.Conv2D(16, 3, activation="tanh"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(data.num_classes),
        ]
    )


def cifar_cnn(data: DataSet) -> keras.Model:
    """The convolutional network for CIFAR-10 of Papernot et al., 2021."""
    blocks = []
    for filters in (32, 64, 128):
        blocks += [
            layers.Conv2D(filters, 3, padding="same", activation="tanh"),
            layers.Conv2D(filters, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(2),
        ]
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Rescaling(2.0 / data.scale, offset=-1.0),
            *blocks,
            layers.Flatten(),
            layers.Dense(128, activation="tanh"),
            layers.Dense(data.num_classes),
        ]
    )


def pca_mlp(data: DataSet) -> keras.Model:
    """Abadi et al.: 60 private principal components, 1000 hidden units.

    The first component of MNIST, near the mean image, holds 40% of the energy and
    tells digits apart least: partial whitening brings the others up. Projections of
    unit-norm inputs are small (their squares sum to about 1), so they are multiplied by
    a constant; otherwise gradients stay far below the clip, and the noise above them.
    """
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            PrivatePCA(num_components=60, whitening=0.35),
            layers.Rescaling(14.0),
            layers.Dense(1000, activation="relu"),
            layers.Dense(data.num_classes),
        ]
    )


def mlp(data: DataSet) -> keras.Model:
    """Two small hidden layers with tanh, for tables."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Flatten(),
            layers.Rescaling(1.0 / data.scale),
            layers.Dense(64, activation="tanh"),
            layers.Dense(32, activation="tanh"),
            layers.Dense(data.num_classes),
        ]
    )


def linear(data: DataSet) -> keras.Model:
    """Logistic regression."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Flatten(),
            layers.Rescaling(1.0 / data.scale),
            layers.Dense(data.num_classes),
        ]
    )


def embedding_bag(data: DataSet) -> keras.Model:
    """The mean of word embeddings, for token numbers below 10,000 (0 is padding)."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:], dtype="int32"),
            layers.Embedding(10_000, 16),
            layers.GlobalAveragePooling1D(),
            layers.Dense(32, activation="tanh"),
            layers.Dense(data.num_classes),
        ]
    )


def bag_of_words(data: DataSet) -> keras.Model:
    """Logistic regression on which words occur, for token numbers below 10,000.

    Each text is a vector of norm 1. Words that are everywhere tell little and fill most
    of it: private means are subtracted, and the rare words brought up.
    """
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:], dtype="int32"),
            layers.CategoryEncoding(10_000, output_mode="multi_hot"),
            layers.UnitNormalization(),
            PrivateNormalization(power=0.5),
            layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )


def binned_linear(data: DataSet) -> keras.Model:
    """Logistic regression on columns of [0, 1], and on the steps that numbers reach.

    Income hangs on age or capital gains by no straight line. Public steps let a linear
    model bend, and private normalisation makes up for those that few people reach.
    """
    columns = data.x_train.shape[1]
    # All columns of Adult but the first five are 0 or 1, by its public description.
    numbers = 5 if data.name == "adult" else columns
    inputs = keras.Input([columns])
    values = layers.Rescaling(1.0 / data.scale)(inputs)
    edges = np.arange(0.5, _STEPS, dtype=np.float32) / _STEPS
    steps = values[:, :numbers, np.newaxis] > edges
    steps = layers.Flatten()(keras.ops.cast(steps, values.dtype))
    features = layers.Concatenate()([values, steps])
    features = PrivateNormalization(power=0.5)(features)
    outputs = layers.Dense(data.num_classes, kernel_initializer="zeros")(features)
    return keras.Model(inputs, outputs)


def scatter_linear(data: DataSet) -> keras.Model:
    """Logistic regression on scattering features of each image, normalised in groups."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            layers.Flatten(),
            layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )


def scatter_drawn(data: DataSet) -> keras.Model:
    """Logistic regression on scattering whitened by drawings, privately centred.

    Features of equal length lose nothing in the clip. The mean image, which is in all of
    them, would fill much of that length.
    """
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            PrivateNormalization(power=0.0),
            layers.Flatten(),
            layers.UnitNormalization(),
            layers.Rescaling(10.0),
            layers.Dense(data.num_classes, kernel_initializer="zeros", use_bias=False),
        ]
    )


def _normalized_scattering(data: DataSet) -> PrivateNormalization:
    """Private normalisation of scattering coefficients.

    Those of second order are a hundredth of those of order 0; public scales bring them
    near each other, so that one clip fits the means of all.
    """
    paths = np.concatenate([[0.2], np.full(16, 0.015), np.full(64, 0.0015)])
    colours, others = divmod(data.x_train.shape[-1], len(paths))
    return PrivateNormalization(scales=1.0 if others else np.tile(paths, colours))


def scatter_normalized(data: DataSet) -> keras.Model:
    """Logistic regression on scattering features, privately normalised."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            _normalized_scattering(data),
            layers.Flatten(),
            layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )


def scatter_random(data: DataSet) -> keras.Model:
    """Logistic regression on random features of scattering, privately normalised."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            PrivateNormalization(),
            layers.Flatten(),
            layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )


def scatter_cnn(data: DataSet) -> keras.Model:
    """A small convolutional network on scattering features, privately normalised."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            _normalized_scattering(data),
            layers.Conv2D(64, 3, padding="same", activation="tanh"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="tanh"),
            layers.Flatten(),
            layers.Dense(data.num_classes, kernel_initializer="zeros"),
        ]
    )


#: The models that the command line knows by name.
MODELS: dict[str, Callable[[DataSet], keras.Model]] = {
    function.__name__: function
    for function in (
        tanh_cnn,
        small_cnn,
        cifar_cnn,
        pca_mlp,
        mlp,
        linear,
        embedding_bag,
        bag_of_words,
        binned_linear,
        scatter_linear,
        scatter_drawn,
        scatter_normalized,
        scatter_random,
        scatter_cnn,
    )
}


def build_model(identifier: str, data: DataSet) -> keras.Model:
    """Builds a model for a data set.

    Args:
        identifier: A name in `MODELS`, or `module:function` for a function of your
            own that takes a `DataSet` and returns a built Keras model.
        data: The data set.

    Returns:
        The model.

    Raises:
        ValueError: If there is no such model, or it does not fit the data.
    """
    if is_own(identifier):
        function = import_own(identifier, "model")
    elif identifier in MODELS:
        function = MODELS[identifier]
    else:
        raise ValueError(
            f"Argument `model` must be one of {', '.join(MODELS)}, or "
            f"`module:function`. Received: model={identifier}"
        )
    try:
        model = function(data)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Model `{identifier}` cannot be built for data set `{data.name}` with "
            f"inputs of shape {data.x_train.shape[1:]}: {error}"
        ) from error
    if not isinstance(model, keras.Model) or not model.built:
        raise ValueError(
            f"Function `{identifier}` must return a built keras.Model. "
            f"Received: {type(model).__name__}"
        )
    if model.output_shape != (None, data.num_classes):
        raise ValueError(
            f"Model `{identifier}` must have {data.num_classes} outputs for data set "
            f"`{data.name}`. Received: output_shape={model.output_shape}"
        )
    return model
