"""One private step: losses to gradients, verified, bounded and released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from keras_dp_ext._compat.op_creation import shared_ops
from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.gradients import per_example_gradients
from keras_dp_ext.gradients.chunks import chunks_of
from keras_dp_ext.gradients.graph.cudnn import without_cudnn
from keras_dp_ext.gradients.losses import separate
from keras_dp_ext.optimizers import padding
from keras_dp_ext.optimizers.build_scope import all_initialized
from keras_dp_ext.optimizers.collector import paused_collector
from keras_dp_ext.optimizers.lot_size import (
    examples_per_microbatch,
    expected_lot,
    is_of_people,
)
from keras_dp_ext.optimizers.rows_at_a_time import check_fits, rows_under_way
from keras_dp_ext.optimizers.shared_lot import (
    check_places_eagerly,
    register_release,
)
from keras_dp_ext.optimizers.training_session import (
    begin_session,
    guard_train_function,
)
from keras_dp_ext.verification.probe import Probe
from keras_dp_ext.verification.state_guard import private_update

if TYPE_CHECKING:
    from keras_dp_ext.gradients import PerExampleGradients


def trace_step_on_loss(
    optimizer: Any,
    loss: tf.Tensor,
    variables: Sequence[keras.Variable],
    context: FitContext | None,
) -> None:
    """Traces one private update from the scalar loss of Keras' training step."""
    separated = separate(loss)
    trace_step(
        optimizer,
        separated.per_example,
        separated.data_independent,
        variables,
        context,
    )
    mask = padding.examples_mask(context)
    if mask is not None:
        padding.correct_loss_log(context.model, separated, mask)
        if context.is_masked and optimizer._state.first_time("unweighted metrics"):
            padding.warn_of_unweighted_metrics(context.model)


@paused_collector()
@shared_ops()
def trace_step(
    optimizer: Any,
    losses: tf.Tensor,
    penalties: Sequence[tf.Tensor],
    variables: Sequence[keras.Variable],
    context: FitContext | None,
) -> None:
    """Traces one private update into the default graph.

    Args:
        optimizer: The private optimizer.
        losses: `[batch]`, symbolic.
        penalties: Scalars that depend on the weights only.
        variables: The trainable variables.
        context: What is known of the running `fit`.
    """
    optimizer._ensure_built(variables)
    if not all_initialized(variables):
        # TensorFlow traces a function that creates variables twice, and runs
        # only the second trace. Nothing may be updated by this one.
        with tf.control_dependencies(
            [tf.debugging.Assert(False, ["This trace must not run."])]
        ):
            return
    check_fits(optimizer, losses.shape[0])
    losses = without_cudnn(losses)
    begin_session(optimizer, context)
    optimizer._warn_of_reproducible_noise()
    mask = padding.examples_mask(context)
    losses = padding.masked_losses(losses, mask)
    penalty_gradients = _penalty_gradients(penalties, variables)
    with private_update(
        losses,
        optimizer._watched_model(context),
        own=optimizer._own_variables(),
        exact=optimizer._exact_variables(),
        trained=variables,
    ):
        group = examples_per_microbatch(optimizer, losses, context)
        if is_of_people(context):
            losses = padding.averaged_over_people(losses, mask, group)
        with chunks_of(optimizer.chunk_bytes):
            gradients = per_example_gradients(losses, variables, group)
            sums = optimizer.mechanism.bound(gradients)
            # After the bound: the probe runs the very ops with which it was built.
            Probe(losses, variables, gradients, group).verify()
        _count_dropped(optimizer, gradients)
        part = rows_under_way(optimizer)
        if part is not None and not part.fits:
            part.keep(sums, penalty_gradients, variables, group)
            return
        register_release(optimizer, losses)
        add_to_lot(
            optimizer,
            sums,
            penalty_gradients,
            variables,
            losses.shape[0],
            group,
            context,
        )


def add_to_lot(
    optimizer: Any,
    sums: Sequence[tf.Tensor],
    penalty_gradients: Sequence[tf.Tensor],
    variables: Sequence[keras.Variable],
    rows: int | None,
    group: int,
    context: FitContext | None,
) -> None:
    """Hands bounded sums on to the lot, with the public number of its rows.

    Args:
        optimizer: The private optimizer.
        sums: Of bounded gradients.
        penalty_gradients: Gradients of penalties on the weights.
        variables: The trainable variables.
        rows: Of the batch, if their number is known while the step is traced.
        group: Examples per microbatch.
        context: What is known of the running `fit`.
    """
    expected_rows = expected_lot(optimizer, rows, context)
    if not is_of_people(context):
        expected_rows /= group
    guard_train_function(optimizer, context)
    optimizer._release.add_batch(
        sums, penalty_gradients, variables, expected_rows, optimizer._apply_average
    )


def trace_function(
    optimizer: Any,
    loss_function: Callable[[], tf.Tensor],
    variables: Sequence[keras.Variable],
    context: FitContext | None,
) -> None:
    """Eager mode with a function, which is traced anew in every call.

    What a function reads (a global, an attribute, the next batch of an iterator)
    may change without any sign that could be seen from here.
    """
    optimizer._ensure_built(variables)
    begin_session(optimizer, context)
    check_places_eagerly(optimizer, context)

    @tf.function
    def step() -> None:
        optimizer.minimize(loss_function(), variables)

    step()


def _count_dropped(optimizer: Any, gradients: PerExampleGradients) -> None:
    counter = optimizer._state.dropped
    if counter is not None:
        dropped = tf.logical_not(gradients.finite_rows())
        counter.assign_add(tf.math.count_nonzero(dropped))


def _penalty_gradients(
    penalties: Sequence[tf.Tensor], variables: Sequence[keras.Variable]
) -> list[tf.Tensor]:
    """Gradients of the penalties on the weights: no data, so no noise needed."""
    if not penalties:
        return []
    values = [getattr(variable, "value", variable) for variable in variables]
    gradients = tf.gradients(
        tf.add_n(penalties),
        [value.handle for value in values],
        unconnected_gradients="none",
    )
    return [
        tf.zeros(variable.shape)
        if gradient is None
        else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
