"""A warning where a saved model will come back without its private optimizer."""

from __future__ import annotations

import warnings

import keras


def loses_its_optimizer(model: keras.Model) -> bool:
    """Whether `load_model` leaves the compilation to the model's own class.

    Keras does so if the class has a `compile` of its own, but no
    `compile_from_config`. The tasks of KerasHub then compile themselves, with Adam.
    """
    cls = type(model)
    restores = cls.compile_from_config is not keras.Model.compile_from_config
    return cls.compile is not keras.Model.compile and not restores


def warn_of_lost_optimizer(model: keras.Model) -> None:
    """Warns when a model is saved: none of our code runs when it is loaded."""
    warnings.warn(
        f"`{type(model).__name__}` has a `compile` of its own, so `load_model` will not "
        "restore the private optimizer that is saved here: the loaded model gets a "
        "plain one, or none, and training it further would NOT be private. After "
        "`model = keras.models.load_model(path)`, call "
        "`keras_dp_ext.models.restore_optimizer(model, path)`: it brings back the "
        "optimizer with what was spent. A checkpoint of weights alone, restored into a "
        "model that you compile yourself, needs nothing.",
        stacklevel=2,
    )
