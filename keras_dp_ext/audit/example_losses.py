"""The loss of every single example, as a compiled model defines it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


class _PerExample(keras.losses.Loss):
    """Lifts a function of a batch to a Keras loss that does not reduce."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(reduction="none")
        self._function = function

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self._function(y_true, y_pred)


def example_losses(
    model: keras.Model, x: Any, y: Any, batch_size: int = 256
) -> np.ndarray:
    """`[N]` losses in inference mode, through nothing but the public Keras API.

    Args:
        model: Compiled with a single loss.
        x: Inputs, as for `model.predict`.
        y: Targets, `[N, ...]`.
        batch_size: Examples that are predicted at a time.

    Raises:
        ValueError: If the model has no loss, or several.
    """
    loss = getattr(model, "loss", None)
    if isinstance(loss, (list, tuple, dict)) or loss is None:
        raise ValueError(
            "Argument `model` must be compiled with one loss. "
            f"Received: model.loss={loss}"
        )
    loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        loss = copy.copy(loss)
        loss.reduction = "none"
    else:
        loss = _PerExample(loss)
    predictions = model.predict(x, batch_size=batch_size, verbose=0)
    values = keras.ops.convert_to_numpy(loss(np.asarray(y), predictions))
    return values.astype(np.float64).reshape([len(values), -1]).mean(axis=1)
