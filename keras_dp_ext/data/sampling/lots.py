"""How the examples of one release are chosen, by what `fit` was called with."""

from __future__ import annotations

from typing import Any

from keras_dp_ext._compat import tf_workers
from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.accounting.sampling import FullBatch, Sampling, Shuffled

_REMEDY = (
    "Use `keras_dp_ext.data.poisson_batches`, arrays, or "
    "`from_tensor_slices(...).shuffle(n).batch(b)`; or pass "
    "`sampling=` to `PrivacyAccountant`, if you know how batches are drawn."
)


def sampling_of_lots(
    context: FitContext, accumulation: int, stated: Sampling | None = None
) -> Sampling:
    """The sampling of lots, as found in the data or else as stated.

    Args:
        context: What `fit` was called with.
        accumulation: Batches that the optimizer puts into a lot.
        stated: What the user says. It is believed where nothing is found, and must
            not contradict what is found.

    Raises:
        ValueError: If it is neither found nor stated, if lots are not what was
            sampled, or if `stated` contradicts the data.
    """
    if context.sampling is None:
        if stated is None:
            reason = context.unknown or "there is no `fit` to be seen"
            raise ValueError(
                f"It is not known how batches are drawn: {reason}. {_REMEDY}"
            )
        check_unit(stated, context)
        return stated
    found = _found(context, accumulation)
    if stated == FullBatch():
        return FullBatch(unit=found.unit)
    if stated not in (None, FullBatch(unit=found.unit), found):
        raise ValueError(
            f"Argument `sampling` must agree with the data, which has {found}. "
            f"Received: sampling={stated}"
        )
    return stated or found


def check_shared(context: FitContext | None) -> None:
    """Raises if several workers `fit` on batches that may hold an example twice.

    Each worker runs the pipeline of its own program. A `shuffle`, that of arrays
    included, has another order in each, so that a row can be in the batches of two:
    whatever the sampling rate, it would move the sum by two bounds. Samplers of this
    package agree on their lots (`workers.py`), and each worker takes other rows of them.
    """
    if context is None or tf_workers.this_worker().count == 1:
        return
    if context.accumulation_steps is None:
        raise ValueError(
            "Several workers must train on lots that they have agreed on, such as "
            "`keras_dp_ext.data.poisson_batches(x, y, batch_size)`: each shuffles by "
            "itself, and an example in the batches of two would count twice in one "
            f"update. Received: {type(context.data).__name__}"
        )
    import tensorflow as tf

    policy = context.data.options().experimental_distribute.auto_shard_policy
    if policy != tf.data.experimental.AutoShardPolicy.DATA:
        raise ValueError(
            "Leave the `auto_shard_policy` of lots as it is (DATA), by which each "
            f"worker takes other rows of a lot. Received: {policy}"
        )


def check_unit(sampling: Sampling, context: FitContext | None) -> None:
    """Raises if a stated sampling protects others than those whose rows are bounded."""
    unit = "example" if context is None else context.unit
    if sampling.unit != unit:
        raise ValueError(
            f"Argument `sampling` must have the unit of what is bounded, one {unit}: "
            "all rows of a person are bounded together in `fit` on the lots of "
            "`poisson_batches(..., user_ids=ids, examples_per_user=k)` only. Received: "
            f"sampling={sampling} with unit={sampling.unit}"
        )


def _found(context: FitContext, accumulation: int) -> Sampling:
    """How the data chooses the examples of one release."""
    if context.accumulation_steps is not None:
        if context.accumulation_steps != accumulation:
            raise ValueError(
                "The data is cut into lots of "
                f"{context.accumulation_steps} batch(es), but the optimizer "
                f"accumulates {accumulation}: its lots are not what was sampled. Pass "
                "the same `accumulation_steps` to the pipeline as "
                "`gradient_accumulation_steps` to the optimizer."
            )
        return context.sampling
    found: Any = context.sampling  # `Shuffled`: what plain pipelines are.
    batches = found.steps_per_epoch
    if batches % accumulation:
        raise ValueError(
            f"`gradient_accumulation_steps` must divide the {batches} batches of an "
            "epoch: a lot that spans two epochs can hold an example twice. "
            f"Received: gradient_accumulation_steps={accumulation}"
        )
    return Shuffled(
        steps_per_epoch=batches // accumulation,
        rate=min(1.0, accumulation * found.rate),
    )
