"""Errors of the private training step that are raised in more than one place."""

from __future__ import annotations

from typing import Any


class NoWeightsError(ValueError):
    """There is nothing to train."""

    def __init__(self):
        super().__init__(
            "The model has no trainable weights, so there is nothing to train. "
            "Received: variables=[]. Build the model, or set "
            "`layer.trainable = True` on some layer."
        )


class NoLossesError(ValueError):
    """A gradient arrived, and the losses of the examples did not."""

    def __init__(self, optimizer: Any):
        super().__init__(
            f"{type(optimizer).__name__} needs the loss of each example; gradients of "
            "the whole batch cannot be made private any more. Train with `model.fit` "
            "(not through LossScaleOptimizer: with the mixed_float16 policy, compile "
            "with `auto_scale_loss=False`). In a `train_step` of your own, call "
            "`loss = self.optimizer.scale_loss(loss)` inside the tape, before "
            "`tape.gradient`; or call `optimizer.minimize(losses, variables)` in the "
            "tf.function of a custom loop."
        )
