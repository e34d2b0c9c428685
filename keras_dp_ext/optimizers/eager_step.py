"""One private step on losses that were computed eagerly, with a tape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.gradients import MaterializedGradients
from keras_dp_ext.optimizers import padding
from keras_dp_ext.optimizers.lot_size import examples_per_microbatch, is_of_people
from keras_dp_ext.optimizers.private_step import add_to_lot
from keras_dp_ext.optimizers.rows_at_a_time import check_fits
from keras_dp_ext.optimizers.shared_lot import check_places_eagerly
from keras_dp_ext.optimizers.training_session import begin_session


def eager_step(
    optimizer: Any,
    losses: tf.Tensor,
    variables: Sequence[keras.Variable],
    tape: tf.GradientTape | None,
    context: FitContext | None,
) -> None:
    """Every row by a backward pass through all of them: exact, slow, not verified."""
    if tape is None:
        raise ValueError(
            "Argument `tape` is needed for losses that were computed eagerly. Pass "
            "the tape that recorded them, or call `minimize` in a tf.function. "
            f"Received: tape={tape}"
        )
    if optimizer._state.first_time("eager mode"):
        warnings.warn(
            "Losses that were computed eagerly leave no graph behind, so it "
            "cannot be verified that the model treats every example by itself "
            "(BatchNormalization does not), and each step costs O(batch^2). Call "
            "`minimize` in a tf.function instead.",
            stacklevel=3,
        )
    optimizer._ensure_built(variables)
    check_fits(optimizer, losses.shape[0])
    if is_of_people(context):
        raise ValueError(
            "Lots of people (`user_ids`) need a traced training step. Compile the "
            "model without `run_eagerly=True`."
        )
    begin_session(optimizer, context)
    check_places_eagerly(optimizer, context)
    optimizer._warn_of_reproducible_noise()
    group = examples_per_microbatch(optimizer, losses, context)
    with tape:
        losses = padding.masked_losses(losses, padding.examples_mask(context))
        rows = tf.reduce_mean(
            tf.reshape(tf.cast(losses, tf.float32), [-1, group]), axis=1
        )
    values = [getattr(variable, "value", variable) for variable in variables]
    jacobian = tape.jacobian(
        rows, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    if not all(bool(tf.reduce_all(tf.math.is_finite(j))) for j in jacobian):
        # The rows pass through one another's zeros: 0 * NaN is NaN in all of them.
        raise ValueError(
            "A gradient is not finite, and in eager mode one such example would "
            "erase all others from the sum. Nothing was released. Call `minimize` "
            "in a tf.function, where it counts as zero by itself."
        )
    sums = optimizer.mechanism.bound(MaterializedGradients(jacobian))
    add_to_lot(optimizer, sums, [], variables, losses.shape[0], group, context)
