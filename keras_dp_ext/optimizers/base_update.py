"""The base optimizer's own update, with what was released in place of a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from keras.optimizers import Optimizer as KerasOptimizer
else:
    KerasOptimizer = (
        object  # The class to make private comes behind, in `make_private`.
    )


class BaseUpdate(KerasOptimizer):
    """The part of `PrivateOptimizer` that hands a release to Keras' optimizer class.

    It stands between `PrivateOptimizer` and that class. A release is complete: it is
    accumulated and reduced already, and the update runs in cross-replica context.
    """

    @property
    def gradient_accumulation_steps(self) -> int | None:
        """Batches that make up one lot, or `None` for one."""
        if self._accumulation_steps_hidden or self._accumulation_steps == 1:
            return None
        return self._accumulation_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: Any) -> None:
        # Set by the base class, which must not accumulate by itself.
        assert value is None

    _accumulation_steps = 1
    _accumulation_steps_hidden = False

    def _apply_average(
        self, averages: Sequence[tf.Tensor], variables: Sequence[Any]
    ) -> None:
        """Keras' own update, with what was released in place of a gradient."""
        self._accumulation_steps_hidden = True
        try:
            super().apply(averages, variables)
        finally:
            self._accumulation_steps_hidden = False

    def _gradient_noise_variance(self) -> float:
        """Variance of the noise in each coordinate of a release; some optimizers ask."""
        deviation = self.mechanism.noise_deviation()
        if deviation is None:
            raise ValueError(
                f"{type(self).__name__} needs noise of one known size in all "
                "coordinates. Use the mechanism `DPSGD`, or `make_private` with a "
                "Gaussian noise and no refinement. Received: "
                f"mechanism={type(self.mechanism).__name__}"
            )
        return (deviation / self.mechanism.expected_rows) ** 2

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> list[Any]:
        """Nothing to reduce: what was released is the same on all replicas."""
        return list(grads_and_vars)

    def _backend_update_step(
        self, grads: Any, trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        if tf.distribute.get_replica_context() is not None:
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        values = [getattr(v, "value", v) for v in trainable_variables]
        self._distributed_tf_update_step(
            tf.distribute.get_strategy(),
            list(zip(grads, values, strict=True)),
            learning_rate,
        )

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        if tf.distribute.get_replica_context() is not None:
            super()._apply_weight_decay(variables)
            return
        if self.weight_decay is None:
            return
        factor = self.learning_rate * self.weight_decay

        def decay(value: Any) -> None:
            if self._use_weight_decay(value):
                value.assign_sub(value * tf.cast(factor, value.dtype))

        for variable in variables:
            tf.distribute.get_strategy().extended.update(
                getattr(variable, "value", variable), decay, group=False
            )
