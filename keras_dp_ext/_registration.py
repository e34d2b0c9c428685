"""Makes `keras.saving` know our classes after `import keras_dp_ext` alone.

Subpackages load on first use, so a program that only loads a saved model has not
imported the module that registers the class which the file names. Importing all of
them would make every import wait for TensorFlow. Instead Keras' registry gets a
stand-in for every class, which imports the true one when it is asked for it. If Keras
itself is imported later, its import is what this waits for.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any

_PACKAGE = "keras_dp_ext"

# Optimizers of Keras with every mechanism that knows them all by name.
_BASES = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
)

# Module of each class that is registered; a test compares this with the registry.
_CLASSES = {
    "data": ("EachView", "PrivateNormalization", "PrivatePCA", "Scattering"),
    "optimizers": (
        *(f"{mechanism}{base}" for mechanism in ("DP", "Composed") for base in _BASES),
        "BLTSGD",
        "AutomaticAdam",
        "AutomaticSGD",
        "BandInvSGD",
        "BandMFAdam",
        "BandMFSGD",
        "ComposedAdamBC",
        "DPAdamBC",
        "DPFTRLSGD",
        "DirectionalAdam",
        "DirectionalSGD",
        "EncodedAdam",
        "EncodedSGD",
        "AdaClipAdam",
        "AdaClipSGD",
        "PerLayerAdam",
        "PerLayerSGD",
        "QuantileAdam",
        "QuantileSGD",
        "TanhAdam",
        "TanhFilteredSGD",
        "TanhSGD",
    ),
    "tf_privacy": (
        "DPKerasAdagradOptimizer",
        "DPKerasAdamOptimizer",
        "DPKerasSGDOptimizer",
        "VectorizedDPKerasAdagradOptimizer",
        "VectorizedDPKerasAdamOptimizer",
        "VectorizedDPKerasSGDOptimizer",
    ),
}


def names() -> set[str]:
    """The registered names of all classes that a saved model may hold."""
    return {f"{_PACKAGE}>{name}" for group in _CLASSES.values() for name in group}


def register_on_import() -> None:
    """Registers stand-ins now, or as soon as Keras is imported."""
    if hasattr(sys.modules.get("keras"), "saving"):
        _register()
    else:
        sys.meta_path.insert(0, _KerasFinder())


def _register() -> None:
    import keras

    registry = keras.saving.get_custom_objects()
    for module, group in _CLASSES.items():
        for name in group:
            registry.setdefault(f"{_PACKAGE}>{name}", _stand_in(module, name))


def _stand_in(module: str, name: str) -> type:
    def from_config(cls: type, config: dict[str, Any], **arguments: Any) -> Any:
        import keras

        importlib.import_module(f"{_PACKAGE}.{module}")
        # Not `get_registered_object`: while a model is loaded, it sees a copy.
        registered = keras.saving.get_custom_objects()[f"{_PACKAGE}>{name}"]
        if registered is cls:
            raise ValueError(
                f"The file was saved with {name}, which needs a class that this "
                f"version of Keras does not have. Received: keras {keras.__version__}"
            )
        return registered.from_config(config, **arguments)

    return type(name, (StandIn,), {"from_config": classmethod(from_config)})


class StandIn:
    """Takes the place of a class in Keras' registry until it is needed."""


class _KerasFinder(importlib.abc.MetaPathFinder):
    """Finds Keras as usual, and registers our classes once it has been imported."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "keras" or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            if hasattr(module, "saving"):
                _register()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
