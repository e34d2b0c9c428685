"""Refuses losses and inputs that do not have one row for each example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

ONE_LOSS_EACH = (
    "average the losses of an example's views or time steps, e.g. "
    "`tf.reduce_mean(tf.reshape(losses, [examples, views]), axis=1)`; in a GAN, "
    "give each real example its own loss, that of a generated one added "
    "(`losses = loss(real) + loss(fake)`), instead of stacking both; do not "
    "average over examples"
)


def check_rows_are_examples(losses: tf.Tensor, sources: Sequence[tf.Tensor]) -> None:
    """Raises where a loss, or a row of an input, is not that of one example.

    What shapes do not tell while a graph is traced is left to the probe.
    """
    if not sources:
        raise _no_data_error(losses)
    known = [losses.shape[0], *(s.shape[0] for s in sources if s.shape.rank)]
    known = [size for size in known if size is not None]
    for source in sources:
        allowed = {None, *known[:1]}
        if losses.shape[0] == 1:
            # A single loss from any number of examples is a mean over them.
            allowed = {1}
        if not source.shape.rank or source.shape[0] not in allowed:
            raise rows_are_not_examples_error(source, losses.shape)


def rows_are_not_examples_error(
    source: tf.Tensor, losses_shape: Any, batch: Any = None
) -> ValueError:
    shape = source.shape if batch is None else [batch, *source.shape[1:]]
    return ValueError(
        "There must be one loss for each example, and one row for each example in "
        f"each input. Received: losses of shape {tuple(losses_shape)} and input "
        f"`{source.op.name}` of shape {tuple(shape)}. Each loss is bounded by itself, "
        "so an example with several losses, or an input that all examples share, "
        f"has no bounded influence. Nothing was trained. What to do: {ONE_LOSS_EACH}; "
        "and pass public values that all examples share as Python constants or "
        "variables, not as inputs."
    )


def _no_data_error(losses: tf.Tensor) -> ValueError:
    return ValueError(
        "No input with one row for each loss was found, so it cannot be verified "
        "that the model treats every example by itself. Received: losses of shape "
        f"{losses.shape}. Pass the batch as arguments of the function that computes "
        "the losses, with one loss for each example."
    )
