"""Lets an optimizer run Keras' own training step on one part of a batch after the other.

Keras hands the loss of a batch to the optimizer when the forward pass is traced already.
So `TensorFlowTrainer.train_step` asks the optimizer of the model first: one that has
`_step_in_parts` makes the step. All others are trained as before. A Keras whose
`train_step` has other arguments is an `IncompatibleVersionError`.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from keras_dp_ext._compat.versions import incompatible, require

_ASKS = "_keras_dp_ext_asks"


def let_optimizers_cut_batches() -> None:
    """Makes `keras.Model.train_step` ask the optimizer.

    Relies on `TensorFlowTrainer.train_step(data)` (Keras 3.10).
    """
    from keras.src.backend.tensorflow import trainer

    owner = require(trainer, "TensorFlowTrainer")
    original = require(owner, "train_step")
    if hasattr(original, _ASKS):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["self", "data"]:
        raise incompatible(f"`train_step` takes {found} in place of ['self', 'data']")

    @functools.wraps(original)
    def train_step(self: Any, data: Any) -> Any:
        step_in_parts = getattr(self.optimizer, "_step_in_parts", None)
        if step_in_parts is None:
            return original(self, data)
        return step_in_parts(self, data, original)

    setattr(train_step, _ASKS, True)
    owner.train_step = train_step
