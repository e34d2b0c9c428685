"""A model of somebody else, with one batch of made-up data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH = 16


@dataclasses.dataclass
class Training:
    """What `compile` and `fit` get, but for the optimizer.

    Attributes:
        model: Built, not compiled.
        x: Inputs of `BATCH` examples, of any structure.
        y: Their targets.
        loss: A loss of Keras, or its name.
    """

    model: Any
    x: Any
    y: Any
    loss: Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A training of a model.

    Attributes:
        name: For the table.
        source: Where the model comes from.
        build: Makes the training.
        remark: What differs from the model as it comes.
    """

    name: str
    source: str
    build: Callable[[], Training]
    remark: str = ""


def generator() -> np.random.Generator:
    return np.random.default_rng(1)


def tokens(vocabulary: int, *shape: int) -> np.ndarray:
    """Random tokens above 0, which many models take for padding."""
    return generator().integers(1, vocabulary, (BATCH, *shape)).astype(np.int32)


def numbers(*shape: int) -> np.ndarray:
    return generator().normal(size=(BATCH, *shape)).astype(np.float32)


def labels(classes: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, classes, (BATCH, *shape))


def cross_entropy(reduction: str = "sum_over_batch_size"):
    import keras

    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction
    )


def enliven(model) -> None:
    """Gives values to trained weights that start at zero.

    The second factor of LoRA does, which hides the first one's gradient.
    """
    rng = generator()
    for weight in model.trainable_weights:
        value = weight.numpy()
        if not np.any(value):
            weight.assign(0.1 * rng.normal(size=value.shape))


def freeze_batch_statistics(model, x) -> None:
    """As in the base of a model that is fine-tuned, with statistics of data.

    Those that a new model comes with let the activations of a deep one vanish, and so
    all gradients but those of its last layer.
    """
    import keras

    frozen = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    if frozen:
        momenta = [layer.momentum for layer in frozen]
        for layer in frozen:
            layer.momentum = 0.5  # No variance near zero, which magnifies rounding.
        model(x, training=True)
        for layer, momentum in zip(frozen, momenta, strict=True):
            layer.momentum = momentum
            layer.trainable = False


def leave_out_dropout(model) -> None:
    """A loop over the examples would draw other numbers than a batch."""
    for layer in model._flatten_layers():
        if type(layer).__name__ in ("Dropout", "DropPath"):
            layer.rate = 0.0
