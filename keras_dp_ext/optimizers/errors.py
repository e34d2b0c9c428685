"""Errors of the private training step that are raised in more than one place.

Plain `ValueError`s: AutoGraph turns exceptions of our own classes, raised while a
function is traced, into a `StagingError` that hides what they are.
"""

from __future__ import annotations

from typing import Any

from keras_dp_ext.gradients.graph.ops import variable_name


def no_weights_error() -> ValueError:
    """There is nothing to train."""
    return ValueError(
        "The model has no trainable weights, so there is nothing to train. "
        "Received: variables=[]. Build the model, or set "
        "`layer.trainable = True` on some layer. If this is `load_model` on an "
        "`.h5` file: that format keeps neither the state of an optimizer nor the "
        "spent budget. Save as `.keras`, or load with `compile=False` and compile "
        "with an optimizer that you call `continue_from(former_optimizer)` on."
    )


def unknown_variable_error(optimizer: Any, variable: Any) -> ValueError:
    """A weight has joined since the optimizer was built.

    Keras' own error shows the value of the weight, which older versions cannot read
    while a step is traced.
    """
    name = type(optimizer).__name__
    return ValueError(
        f"Unknown variable: {name} was built without {variable_name(variable)}, and "
        "keeps noise and state for the variables that it was built with. Compile the "
        f"model with a new {name}, and call its `continue_from` with this one, so that "
        "what was spent still counts."
    )


def no_losses_error(optimizer: Any, model: Any = None) -> ValueError:
    """A gradient arrived, and the losses of the examples did not.

    Args:
        optimizer: The private optimizer.
        model: The model in `fit`, if there is one.
    """
    name = type(optimizer).__name__
    head = (
        f"{name} needs the loss of each example; gradients of the whole batch cannot "
        "be made private any more. "
    )
    if model is None:
        return ValueError(
            head + "Train with `model.fit`, or call `optimizer.minimize(losses, "
            "variables)` with one loss for each example, in the tf.function of a "
            "custom loop."
        )
    holder = next(
        (key for key, value in vars(model).items() if value is optimizer), "optimizer"
    )
    return ValueError(
        head + f"`{type(model).__name__}.train_step` must hand the loss over: write "
        f"`loss = self.{holder}.scale_loss(loss)` inside the tape, before "
        f"`tape.gradient`; or, without a tape, `self.{holder}.minimize(losses, "
        "variables)` with one loss for each example (`reduction=None`). With the "
        "mixed_float16 policy, compile with `auto_scale_loss=False`: "
        "LossScaleOptimizer hides the loss."
    )
