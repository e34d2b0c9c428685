"""Errors of the private training step that are raised in more than one place.

Plain `ValueError`s: AutoGraph turns exceptions of our own classes, raised while a
function is traced, into a `StagingError` that hides what they are.
"""

from __future__ import annotations

from typing import Any


def no_weights_error() -> ValueError:
    """There is nothing to train."""
    return ValueError(
        "The model has no trainable weights, so there is nothing to train. "
        "Received: variables=[]. Build the model, or set "
        "`layer.trainable = True` on some layer."
    )


def no_losses_error(optimizer: Any) -> ValueError:
    """A gradient arrived, and the losses of the examples did not."""
    return ValueError(
        f"{type(optimizer).__name__} needs the loss of each example; gradients of "
        "the whole batch cannot be made private any more. Train with `model.fit` "
        "(not through LossScaleOptimizer: with the mixed_float16 policy, compile "
        "with `auto_scale_loss=False`). In a `train_step` of your own, call "
        "`loss = self.optimizer.scale_loss(loss)` inside the tape, before "
        "`tape.gradient`; or call `optimizer.minimize(losses, variables)` in the "
        "tf.function of a custom loop."
    )
