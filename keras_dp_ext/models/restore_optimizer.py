"""The private optimizer of a saved model whose class does not restore it."""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_VARIABLES = "optimizer/vars"


def restore_optimizer(model: keras.Model, path: str | os.PathLike) -> None:
    """Compiles a loaded model as it was when it was saved, with what it has spent.

    Keras compiles a loaded model only if its class leaves `compile` as it is. The tasks
    of KerasHub do not: they come back with a plain Adam, and to go on with it would not
    be private. The file has all that is needed: this reads optimizer, loss and metrics
    from it, and the state of the optimizer with its ledger.

    Args:
        model: What `keras.models.load_model(path)` returned.
        path: The `.keras` file.

    Raises:
        ValueError: If the file has no private optimizer.

    Example:

    >>> import keras, numpy as np, keras_dp_ext as dp
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(dp.DPSGD(noise_multiplier=2.0), loss="mse")
    >>> _ = model.fit(np.ones([8, 3]), np.ones([8, 1]), batch_size=4, verbose=0)
    >>> model.save("private.keras")
    >>> loaded = keras.models.load_model("private.keras", compile=False)
    >>> dp.models.restore_optimizer(loaded, "private.keras")
    >>> loaded.optimizer.mechanism.noise_multiplier, int(loaded.optimizer.releases)
    (2.0, 2)
    """
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read(_CONFIG)).get("compile_config") or {}
        weights = archive.read(_WEIGHTS) if _WEIGHTS in archive.namelist() else None
    arguments = keras.saving.deserialize_keras_object(config)
    optimizer = arguments.get("optimizer")
    if not hasattr(optimizer, "ledger") or weights is None:
        raise ValueError(
            "Argument `path` must be the `.keras` file of a model that was compiled "
            "with a private optimizer when it was saved. Received: "
            f"path={os.fspath(path)!r}, with optimizer={optimizer!r}"
        )
    model.compile(**arguments)
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    optimizer.load_own_variables(_variables_of(weights))


def _variables_of(weights: bytes) -> dict[str, Any]:
    with h5py.File(io.BytesIO(weights), "r") as file:
        return {key: value[()] for key, value in file[_VARIABLES].items()}
