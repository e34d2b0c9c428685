"""Layers of Keras that let examples depend on each other, by name.

The probe of the optimizer decides what may be trained, by experiment. This list only
tells earlier, and for a whole model at once, what it is going to refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras

from keras_dp_ext._compat import keras_internals


@dataclasses.dataclass(frozen=True)
class IncompatibleLayer:
    """A layer that private training refuses.

    Attributes:
        layer: The layer.
        problem: What it does.
        advice: What to do about it.
    """

    layer: keras.layers.Layer
    problem: str
    advice: str

    def __str__(self) -> str:
        kind = type(self.layer).__name__
        return f"{self.layer.name} ({kind}) {self.problem}: {self.advice}"


def is_batch_normalization(layer: keras.layers.Layer) -> bool:
    """Whether a layer computes statistics over the batch while it is trained."""
    return isinstance(layer, keras.layers.BatchNormalization) and layer.trainable


def find_incompatible(model: keras.Model) -> list[IncompatibleLayer]:
    """All layers of a model, at any depth, that are known to mix examples.

    Args:
        model: Any model, also a subclassed one.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input([4]), keras.layers.BatchNormalization()])
    >>> [found.problem for found in find_incompatible(model)]
    ['computes statistics over the batch']
    """
    found, seen = [], set()
    for layer in keras_internals.all_layers(model)[1:]:
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        for applies, problem, advice in _RULES:
            if applies(layer):
                found.append(IncompatibleLayer(layer, problem, advice))
                break
    return found


def _is_a(*names: str) -> Callable[[keras.layers.Layer], bool]:
    classes = tuple(
        getattr(keras.layers, name) for name in names if hasattr(keras.layers, name)
    )
    return lambda layer: isinstance(layer, classes)


_RULES: tuple[tuple[Callable[[keras.layers.Layer], bool], str, str], ...] = (
    (
        is_batch_normalization,
        "computes statistics over the batch",
        "`dp.models.make_compatible(model)` replaces it by GroupNormalization",
    ),
    (
        lambda layer: getattr(layer, "stateful", False) is True,
        "carries its state from one batch to the next",
        "pass `stateful=False`",
    ),
    (
        _is_a("MixUp", "CutMix"),
        "blends examples with each other",
        "augment every image by itself, e.g. by RandomFlip and RandomCrop",
    ),
)
