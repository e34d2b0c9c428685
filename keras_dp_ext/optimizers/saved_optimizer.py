"""What a private optimizer writes into files, and reads back."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.optimizers.base_update import KerasOptimizer
from keras_dp_ext.optimizers.lost_optimizer import (
    loses_its_optimizer,
    warn_of_lost_optimizer,
)
from keras_dp_ext.optimizers.release import Release
from keras_dp_ext.optimizers.spending import Spending
from keras_dp_ext.optimizers.state import TrainingState


class SavedOptimizer(KerasOptimizer):
    """The part of `PrivateOptimizer` that saves and restores.

    What was spent goes with the variables; what is not noised yet does not.
    """

    # What `PrivateOptimizer` provides.
    _release: Release
    _spending: Spending
    _state: TrainingState

    def save_own_variables(self, store: Any) -> None:
        saved: dict[str, Any] = {}
        super().save_own_variables(saved)
        if not keras_internals.is_writing_backup():
            self._warn_of_lost_optimizer()
            # The sums of an unfinished lot are not noised: they may be written
            # where training is resumed from, never into a file that is shared.
            for index, variable in enumerate(self.variables):
                if any(variable is other for other in self._release.unfinished):
                    saved[str(index)] = np.zeros_like(saved[str(index)])
        self._spending.save(saved)
        for key, value in saved.items():
            store[key] = value

    def get_config(self) -> dict[str, Any]:
        # Keras asks for it while it writes an `.h5` file.
        self._stay_compiled()
        return super().get_config()

    def _stay_compiled(self) -> None:
        model = self._state.trained_model()
        if model is not None:
            keras_internals.restore_in_compilation(model, self)

    def _warn_of_lost_optimizer(self) -> None:
        model = self._state.trained_model()
        if model is None or not loses_its_optimizer(model):
            return
        if self._state.first_time("lost optimizer"):
            warn_of_lost_optimizer(model)

    def load_own_variables(self, store: Any) -> None:
        saved = {key: store[key] for key in store.keys()}  # noqa: SIM118 (h5py)
        spent = self._spending.take_from(saved)
        super().load_own_variables(saved)
        if spent is not None:
            self._spending.restore(*spent)
