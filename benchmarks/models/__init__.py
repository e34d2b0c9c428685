"""The models of the papers, as functions that return plain Keras models."""

from __future__ import annotations

from typing import Any

from benchmarks.models.alexnet import alexnet
from benchmarks.models.lenet import lenet
from benchmarks.models.mnist_cnn import mnist_cnn
from benchmarks.models.resnet18 import resnet18

__all__ = ["alexnet", "build", "lenet", "mnist_cnn", "resnet18"]

_MODELS = {model.__name__: model for model in (alexnet, lenet, mnist_cnn, resnet18)}


def build(name: str, data: Any, **arguments: Any):
    """The paper's model for a data set; for 8 x 8 digits one that is small enough.

    Args:
        name: A model of this folder, or of `keras_dp_ext.presets`.
        data: A `DataSet`, with pixels as they were loaded.
        **arguments: Of the model, such as `width`.
    """
    from keras_dp_ext.presets import build_model

    if data.name == "digits":
        return build_model("small_cnn", data)
    if name not in _MODELS:
        return build_model(name, data)
    return _MODELS[name](
        data.x_train.shape[1:], data.num_classes, scale=data.scale, **arguments
    )
