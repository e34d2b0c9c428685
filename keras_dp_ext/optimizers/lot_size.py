"""How many rows a lot and a microbatch have: public numbers, never realised ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.optimizers.microbatches import check_people, microbatch_size


def is_of_people(context: FitContext | None) -> bool:
    """Whether a microbatch holds the rows of one person, and lots count people."""
    return context is not None and context.unit == "person"


def examples_per_microbatch(
    optimizer: Any, losses: tf.Tensor, context: FitContext | None
) -> int:
    """Examples per microbatch: 1, unless `num_microbatches` was given.

    Where the data draw people, a microbatch holds the rows of one person.
    """
    if is_of_people(context):
        check_people(optimizer.num_microbatches, losses.shape[0], context)
        return context.rows_per_unit
    if optimizer.num_microbatches is None:
        return 1
    rows = None if _has_smaller_batches(context) else losses.shape[0]
    if rows is not None:
        rows *= tf.distribute.get_strategy().num_replicas_in_sync
    group = microbatch_size(optimizer.num_microbatches, rows, context)
    state = optimizer._state
    if state.examples_per_microbatch not in (None, group):
        raise ValueError(
            "The number of examples per microbatch changes, and with it the "
            "sensitivity. Received: microbatches of "
            f"{state.examples_per_microbatch} and then of {group} examples"
        )
    state.examples_per_microbatch = group
    return group


def _has_smaller_batches(context: FitContext | None) -> bool:
    """Whether batches of this `fit` may be smaller than the one that is traced.

    Up to Keras 3.15 the step is traced for all of them; from 3.16 on for one, and again
    for the last.
    """
    if context is None or context.input_spec is None:
        return False
    leaves = tf.nest.flatten(context.input_spec)
    # Several replicas have a spec each.
    parts = [
        part
        for leaf in leaves
        for part in (
            [leaf]
            if hasattr(leaf, "shape")
            else tf.nest.flatten(leaf, expand_composites=True)
        )
    ]
    return any(part.shape.rank and part.shape[0] is None for part in parts)


def expected_lot(optimizer: Any, rows: int | None, context: FitContext | None) -> int:
    """The public number of examples, or people, in a lot, by which sums are divided.

    Never the realised number, which depends on who is in the data.
    """
    steps = optimizer._accumulation_steps
    if context is not None and context.accumulation_steps not in (None, steps):
        raise ValueError(
            "The data pipeline spreads a lot over a different number of batches "
            "than the optimizer accumulates. Received: "
            f"accumulation_steps={context.accumulation_steps} in the data and "
            f"gradient_accumulation_steps={steps}"
        )
    lot = declared_lot(optimizer, context)
    if lot is None and rows is not None:
        lot = rows * steps
        lot *= tf.distribute.get_strategy().num_replicas_in_sync
        _require_constant(optimizer, lot)
    if lot is None:
        raise ValueError(
            "Argument `expected_batch_size` is needed where the batch size is "
            "not known beforehand. Received: expected_batch_size=None and "
            "a batch of unknown size"
        )
    return lot


def declared_lot(optimizer: Any, context: FitContext | None) -> int | None:
    """Examples of one lot, as `fit` or the user says; `None` if neither does."""
    if optimizer.expected_batch_size is not None:
        return optimizer.expected_batch_size
    if context is None or context.batch_size is None:
        return None
    lot = context.lot_size(optimizer._accumulation_steps)
    if context.is_single_batch:
        _require_constant(optimizer, lot)
    return lot


def _require_constant(optimizer: Any, lot: int) -> None:
    """A size that was only seen, not declared, is public if it is constant."""
    state = optimizer._state
    if state.seen_lot is None:
        state.seen_lot = lot
    if state.seen_lot != lot:
        raise ValueError(
            "The batch size changes. Pass `expected_batch_size`: dividing by the "
            f"realised size would reveal it. Received: {state.seen_lot} and then {lot}"
        )
