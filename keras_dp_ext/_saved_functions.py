"""Functions of the user's as JSON, by the name under which Keras knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def function_config(function: Callable[..., Any]) -> Any:
    """What JSON can hold, and `function_from_config` turns back."""
    import keras

    return keras.saving.serialize_keras_object(function)


def function_from_config(config: Mapping[str, Any]) -> Any:
    """The function with this `function_config`.

    It must be registered with `keras.saving.register_keras_serializable`.
    """
    import keras

    return keras.saving.deserialize_keras_object(dict(config))
