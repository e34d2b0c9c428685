"""The full-batch gradient that directional noise as printed asks for."""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._fit_context import find_fit


class FullBatchDirection(keras.callbacks.Callback):
    """Releases the noised gradient of all training data before every update.

    For `DirectionalSGD(guarantee="published", direction="gradient")` and its kin
    only: Xiang et al., Algorithm 1, lines 4 and 5. The direction is clipped,
    noised with its own share of the budget, and its cost is counted by the
    optimizer. It costs a pass over the whole data set for every update.

    Args:
        x: All training inputs, the same data that `fit` draws batches from.
        y: All training targets.
        batch_size: How many examples to differentiate at a time.
        noise_seed: For tests only: reproducible noise protects nobody.

    Example:

    >>> import keras_dp_ext as dp
    >>> x, y = np.ones([64, 3], "float32"), np.ones([64, 1], "float32")
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> budget = dp.analysis.published_budget(2.0, 1e-5, 64, lot_size=16, epochs=1)
    >>> optimizer = dp.optimizers.DirectionalSGD(
    ...     learning_rate=0.1, guarantee="published", published_budget=budget
    ... )
    >>> model.compile(optimizer, "mse")
    >>> history = model.fit(
    ...     x, y, 16, verbose=0, callbacks=[FullBatchDirection(x, y)]
    ... )
    >>> len(optimizer.mechanism.recorded_events(1)) > 0
    True
    """

    def __init__(
        self, x: Any, y: Any, batch_size: int = 1024, noise_seed: int | None = None
    ):
        super().__init__()
        self._data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)
        self._num_examples = len(tf.nest.flatten(x)[0])
        self._seeds = None if noise_seed is None else np.random.default_rng(noise_seed)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        mechanism = getattr(self.model.optimizer, "mechanism", None)
        if mechanism is None or not mechanism.needs_direction:
            raise ValueError(
                "FullBatchDirection serves optimizers with directional noise, "
                'guarantee="published" and direction="gradient" only. Received: '
                f"optimizer={self.model.optimizer}"
            )
        context = find_fit()
        if context is not None and context.unit == "person":
            raise ValueError(
                "FullBatchDirection bounds the gradient of single examples, and the "
                "lots draw people (`user_ids`): its releases would not protect them."
            )
        if self.model.steps_per_execution != 1:
            raise ValueError(
                "FullBatchDirection needs a direction before every update, so "
                "`steps_per_execution` must be 1. Received: "
                f"steps_per_execution={self.model.steps_per_execution}"
            )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self._mechanism = mechanism
        self._sum_gradients = tf.function(self._sum_of_gradients)
        self._release_first()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._release_first()

    def _release_first(self) -> None:
        """Makes a direction for the coming release, unless there is one.

        The first must exist before Keras traces the training step; the others
        are due whenever the optimizer has completed a lot.
        """
        step = int(self.model.optimizer.releases.numpy())
        if not self._mechanism.has_direction_for(step):
            self._mechanism.release_direction(self._gradient(), self._seed(), step)

    def _seed(self) -> tf.Tensor:
        if self._seeds is None:
            return tf.constant(np.frombuffer(os.urandom(8), np.int32))
        return tf.constant(self._seeds.integers(2**31, size=2), tf.int32)

    def _gradient(self) -> list[tf.Tensor]:
        """Line 4: the mean over all examples of the gradient of the cost."""
        totals = [
            tf.zeros(variable.shape) for variable in self.model.trainable_variables
        ]
        for x, y in self._data:
            totals = [
                total + tf.cast(part, tf.float32)
                for total, part in zip(totals, self._sum_gradients(x, y), strict=True)
            ]
        return [total / self._num_examples for total in totals]

    def _sum_of_gradients(self, x: Any, y: Any) -> Any:
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            prediction = self.model(x, training=True)
            loss = self.model.compute_loss(x, y, prediction)
            # Penalties on the weights are not part of C(X, Y).
            loss -= sum(self.model.losses)
            count = tf.shape(tf.nest.flatten(x)[0])[0]
            loss *= tf.cast(count, loss.dtype)
        return tape.gradient(
            loss,
            [variable.value for variable in variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
