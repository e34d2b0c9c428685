"""Rows of weight 0 are no examples: they count in no sum and in no log.

Whether a loss multiplies all of its terms by the sample weight is up to the loss:
activity regularisers, `add_loss` and many a `train_step` do not. So the mask belongs
to the row, and is applied to whatever the loss of that row is.
"""

from __future__ import annotations

import warnings
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.gradients.losses import SeparatedLoss
from keras_dp_ext.gradients.one_loss_per_example import ONE_LOSS_EACH
from keras_dp_ext.optimizers.another_thread import in_another_thread


def examples_mask(context: FitContext | None) -> tf.Tensor | None:
    """`[batch]`, false for padding; `None` where there are no sample weights.

    Raises:
        ValueError: If the data have padding, and it cannot be told which rows it is.
    """
    if context is None:
        return None
    weights = _sample_weights(context.step_data)
    if not weights:
        if context.is_masked:
            raise ValueError(
                "Cannot see which rows are padding: the batches of `poisson_batches` "
                "do not reach this training step through Keras' training function. "
                "Override `train_step`, not `make_train_function`, and keep the "
                "batches `(x, y, sample_weight)`."
            )
        return None
    return tf.reduce_any(tf.stack([_any_weight(weight) for weight in weights]), axis=0)


def masked_losses(losses: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The losses, with an exact zero for every row of padding."""
    if mask is None:
        return losses
    if not mask.shape.is_compatible_with(losses.shape):
        raise ValueError(
            "There must be one loss for each row of the batch. Received: losses of "
            f"shape {losses.shape} for sample weights of shape {mask.shape}. What to do: "
            f"{ONE_LOSS_EACH}."
        )
    return tf.where(mask, losses, tf.zeros_like(losses))


def averaged_over_people(
    losses: tf.Tensor, mask: tf.Tensor | None, rows_per_person: int
) -> tf.Tensor:
    """Losses whose mean over a person's slots is that over the rows that are there.

    A person with a single row weighs as much as one who fills all slots. Slots without
    a person hold padding alone and stay zeros.
    """
    if rows_per_person == 1:
        return losses
    if mask is None:
        raise ValueError("Lots of people must have sample weights, which mark padding.")
    slots = tf.reshape(tf.cast(mask, losses.dtype), [-1, rows_per_person])
    count = tf.reduce_sum(slots, axis=1, keepdims=True)
    share = rows_per_person / tf.maximum(count, tf.ones_like(count))
    people = tf.reshape(losses, [-1, rows_per_person]) * share
    return tf.reshape(people, [losses.shape[0]])


def correct_loss_log(
    model: keras.Model, separated: SeparatedLoss, mask: tf.Tensor
) -> None:
    """Makes the logged loss a mean over examples: Keras' own counts padding, too.

    Keras adds `loss * rows` to the total and `rows` to the count of its loss metric.

    Args:
        model: The model in `fit`.
        separated: The loss, taken apart.
        mask: `[batch]`, false for padding.
    """
    if not separated.is_mean or not _is_keras_own_step(model):
        return
    tracker = keras_internals.loss_tracker(model)
    examples = tf.cast(mask, tf.float32)
    count, rows = tf.reduce_sum(examples), tf.cast(tf.size(examples), tf.float32)
    total = tf.reduce_sum(masked_losses(separated.per_example, mask))
    if separated.data_independent:
        total += count * tf.add_n(separated.data_independent)
    # Not by the difference to what was logged: the loss of padding may be NaN.
    so_far = _total_of_examples(tracker)
    counted = tracker.count.value - tf.cast(rows, tracker.count.dtype)
    is_first = tf.equal(counted, tf.zeros([], counted.dtype))
    total += tf.where(is_first, 0.0, tf.convert_to_tensor(so_far.value))
    so_far.assign(total)
    tracker.total.assign(tf.cast(total, tracker.total.dtype))
    tracker.count.assign_add(tf.cast(count - rows, tracker.count.dtype))


_TOTAL_NAME = "total_of_examples"


def _total_of_examples(tracker: keras.metrics.Mean) -> keras.Variable:
    """The sum of the losses since the metric was reset, kept beside Keras' own."""
    for variable in tracker.variables:
        if variable.name == _TOTAL_NAME:
            return variable
    strategy = tf.distribute.get_strategy()

    def add() -> keras.Variable:
        with strategy.scope():
            return tracker.add_variable(
                shape=(), initializer="zeros", dtype="float32", name=_TOTAL_NAME
            )

    # TensorFlow forbids new variables in a thread that traces a function again.
    return in_another_thread(add)


def warn_of_unweighted_metrics(model: keras.Model) -> None:
    """Keras hands sample weights to `weighted_metrics` only."""
    if not _is_keras_own_step(model):
        return
    metrics = keras_internals.unweighted_metrics(model)
    if not metrics:
        return
    warnings.warn(
        "Lots of `poisson_batches` have rows of padding, which Keras counts as "
        "examples in `metrics`: what they show during training is wrong. Compile "
        f"with `weighted_metrics={metrics}` instead.",
        stacklevel=2,
    )


def _is_keras_own_step(model: keras.Model) -> bool:
    return type(model).train_step is keras.Model.train_step


def _sample_weights(data: Any) -> list[tf.Tensor]:
    if not isinstance(data, tuple) or len(data) != 3:
        return []
    leaves = keras.tree.flatten(data[2])
    return [_of_this_replica(leaf) for leaf in leaves if leaf is not None]


def _of_this_replica(value: Any) -> tf.Tensor:
    local = tf.distribute.get_strategy().experimental_local_results(value)
    if len(local) == 1:
        return local[0]
    context = tf.distribute.get_replica_context()
    return local[int(tf.get_static_value(context.replica_id_in_sync_group))]


def _any_weight(weight: tf.Tensor) -> tf.Tensor:
    """Whether a row has any weight: sequences may have one for each step."""
    used = tf.not_equal(weight, tf.zeros([], weight.dtype))
    return tf.reduce_any(used, axis=list(range(1, used.shape.rank)))
