"""Makes `model.fit` work on several workers, and on replicas with unequal shares.

In Keras 3.10 to 3.15 it fails there before the first step, with any optimizer, in two
places of `keras/src/backend/tensorflow/trainer.py` (docs/upstream.md):

1. `_maybe_symbolic_build` reduces a batch over the replicas to learn its shapes. On
   several workers its values stay distributed: "Attempt to convert a value
   (PerReplica...) ..."; where 16 rows are shared by three replicas, they have no sum:
   "Inputs to operation AddN ... must have the same size and shape".
2. `reduce_per_replica` takes means of scalar logs along axis 0: "Invalid reduction
   dimension 0 for input with 0 dimensions", on several workers only.

`mend_fit` replaces both, where there are several workers or replicas and nowhere else.
A Keras whose functions have other names or arguments is an `IncompatibleVersionError`.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import tf_workers
from keras_dp_ext._compat.versions import incompatible, require

_MENDED = "_keras_dp_ext_mended"


def mend_fit() -> None:
    """Mends `fit`, `evaluate` and `train_on_batch`, if there are several replicas.

    Relies on `TensorFlowTrainer._maybe_symbolic_build(iterator, data_batch)` and
    `reduce_per_replica(values, strategy, reduction)` of its module (Keras 3.10).
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if tf_workers.this_worker().count == 1 and replicas == 1:
        return
    from keras.src.backend.tensorflow import trainer

    owner = require(trainer, "TensorFlowTrainer")
    build = _with_arguments(
        owner, "_maybe_symbolic_build", ["self", "iterator", "data_batch"]
    )
    reduce = _with_arguments(
        trainer, "reduce_per_replica", ["values", "strategy", "reduction"]
    )
    if not hasattr(build, _MENDED):
        owner._maybe_symbolic_build = _mended_build(build)
    if not hasattr(reduce, _MENDED):
        trainer.reduce_per_replica = _mended_reduce(reduce)


def _with_arguments(owner: Any, name: str, arguments: list[str]) -> Any:
    function = require(owner, name)
    found = list(inspect.signature(function).parameters)
    if found != arguments:
        raise incompatible(f"`{name}` takes {found} in place of {arguments}")
    return function


def _mended_build(original: Any) -> Any:
    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self.distribute_strategy
        if iterator is None or strategy.num_replicas_in_sync == 1:
            original(self, iterator=iterator, data_batch=data_batch)
            return
        # Of two or three values, by the version of Keras.
        for *_, batches in iterator:
            data_batch = _of_first_replica(strategy, next(batches))
            break
        with strategy.scope():
            require(self, "_symbolic_build")(data_batch=data_batch)

    setattr(build, _MENDED, True)
    return build


def _mended_reduce(original: Any) -> Any:
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction not in ("auto", "mean") or not has_several_workers(strategy):
            return original(values, strategy, reduction)
        return keras.tree.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    setattr(reduce_per_replica, _MENDED, True)
    return reduce_per_replica


def has_several_workers(strategy: Any) -> bool:
    """Whether a strategy trains on several processes, and this is one of them."""
    several = tf_workers.this_worker().count > 1
    return several and isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def _of_first_replica(strategy: Any, batch: Any) -> Any:
    return keras.tree.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], batch
    )
