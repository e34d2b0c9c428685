"""TensorFlow Privacy's model classes: what to write in their place."""

from __future__ import annotations

from typing import Any


class _NotNeeded:
    """Raises with the lines that do the same here."""

    _keras_class = ""

    def __init__(
        self, l2_norm_clip: Any = None, noise_multiplier: Any = None, *_: Any, **__: Any
    ):
        raise NotImplementedError(
            f"{type(self).__name__} is not needed: here the optimizer is private, not "
            f"the model. Write `model = keras.{self._keras_class}(...)` and "
            "`model.compile(optimizer=keras_dp_ext.optimizers.DPSGD(learning_rate=..., "
            f"l2_norm_clip={l2_norm_clip}, noise_multiplier={noise_multiplier}), ...)`, "
            "or `keras_dp_ext.optimizers.make_private(...)` for another optimizer."
        )


class DPSequential(_NotNeeded):
    """Use `keras.Sequential` with a private optimizer."""

    _keras_class = "Sequential"


class DPModel(_NotNeeded):
    """Use `keras.Model` with a private optimizer."""

    _keras_class = "Model"
