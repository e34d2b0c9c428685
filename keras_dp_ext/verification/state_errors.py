"""Errors for what a training step writes from the data."""

from __future__ import annotations

import tensorflow as tf


def written_from_data_error(
    name: str, is_model_known: bool, is_of_optimizer: bool
) -> ValueError:
    """Data are written where only noised updates may be."""
    if is_of_optimizer:
        remedy = (
            "Only the private update may change the optimizer. Use a "
            "`keras.optimizers.schedules.LearningRateSchedule`, which depends on the "
            "step alone, or set values between two calls of `fit`."
        )
    else:
        remedy = (
            "Replace BatchNormalization by GroupNormalization "
            "(`keras_dp_ext.models.make_compatible(model)` does it; or freeze it with "
            "`layer.trainable = False`), use no `stateful=True`, and keep no running "
            "statistics of the data in a layer, loss or model. "
        ) + (
            "If it belongs to a metric, make the metric an attribute of the model."
            if is_model_known
            else "If it belongs to a metric, call `optimizer.bind(model)` or update "
            "the metric after `minimize`."
        )
    return ValueError(
        f"The training step updates {name} from the data, "
        "without bound or noise, and it would be released with the model or "
        f"change later updates. {remedy}"
    )


def decided_by_data_error(op: tf.Operation) -> ValueError:
    """Data decide whether or how often a private update happens."""
    return ValueError(
        f"The data decide whether the private update happens (by op `{op.name}` of type "
        f"{op.type}), which reveals them without noise: an update that is left out "
        "shows what the batch was like. Call `minimize` or `apply_gradients` in every "
        "step, whatever the loss. An example without a finite gradient counts as zero "
        "by itself; there is no need to skip the batch."
    )


def metric_in_loss_error(name: str) -> ValueError:
    """A loss reads what a metric has seen."""
    return ValueError(
        f"The loss reads the metric `{name}`, which holds statistics of "
        "the data without bound or noise. Losses may depend on the "
        "batch and on the weights only."
    )
