"""The variables of a private optimizer: made once, and written by its update alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.optimizers.base_update import KerasOptimizer
from keras_dp_ext.optimizers.build_scope import build_scope
from keras_dp_ext.optimizers.errors import no_weights_error, unknown_variable_error
from keras_dp_ext.optimizers.release import Release
from keras_dp_ext.optimizers.spending import Spending
from keras_dp_ext.optimizers.state import TrainingState


class OptimizerVariables(KerasOptimizer):
    """The part of `PrivateOptimizer` that makes its variables and knows them."""

    # What `PrivateOptimizer` and Keras provide.
    built: bool
    name: str
    mechanism: Mechanism
    _release: Release
    _spending: Spending
    _state: TrainingState

    def build(self, variables: Sequence[Any]) -> None:
        variables = list(variables)
        if not variables:
            raise no_weights_error()
        for variable in variables:
            if getattr(variable, "overwrite_with_gradient", False):
                raise ValueError(
                    "float8 training overwrites weights with statistics of the "
                    f"data and cannot be private. Received: {variable.path}"
                )
        self._warn_of_former_training(variables)
        super().build(variables)
        with self._release.precision():
            self.mechanism.build(variables, self._add_mechanism_variable)
        self.mechanism.freeze()
        self._release.build(variables, self._add_mechanism_variable)

    def _add_mechanism_variable(
        self,
        shape: Sequence[int],
        dtype: Any,
        name: str,
        initializer: str = "zeros",
        saved: Any = True,
    ) -> Any:
        arguments = {
            "shape": shape,
            "dtype": dtype,
            "name": name,
            "initializer": initializer,
            "aggregation": "only_first_replica",
        }
        if saved:
            return self.add_variable(**arguments)
        variable = keras.Variable(trainable=False, **arguments)
        self._state.unsaved.append(variable)
        return variable

    def _ensure_built(self, variables: Sequence[Any]) -> None:
        if not self.built:
            with build_scope(variables), tf.name_scope(self.name):
                self.build(variables)
            self.built = True
        for variable in variables:
            if not keras_internals.was_built_for(self, variable):
                raise unknown_variable_error(self, variable)

    def _own_variables(self) -> list[keras.Variable]:
        """All variables that the private update may write."""
        own = [self.releases, self._spending.run_start, *self._state.unsaved]
        return [*self.variables, *own]

    def _exact_variables(self) -> list[keras.Variable]:
        """Those that hold exact sums of the data, which nothing else may read."""
        return [*self._release.lot, *self._state.unsaved]

    def _count_dropped(self) -> keras.Variable:
        """Makes every step that is traced from now on count the rows that it drops.

        See `keras_dp_ext.callbacks.DroppedExamples`. The count is NOT private.

        Returns:
            The counter. It is not saved.
        """
        if self._state.dropped is None:
            self._state.dropped = keras.Variable(
                0,
                dtype="int64",
                trainable=False,
                synchronization="on_read",
                aggregation="sum",
                name="dropped",
            )
            self._state.unsaved.append(self._state.dropped)
        return self._state.dropped
