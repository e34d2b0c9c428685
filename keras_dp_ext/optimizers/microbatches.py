"""How many examples a microbatch has, decided before the first step."""

from __future__ import annotations

from keras_dp_ext._fit_context import FitContext


def microbatch_size(
    num_microbatches: int, rows: int | None, context: FitContext | None
) -> int:
    """The number of examples that are averaged before they are bounded.

    Args:
        num_microbatches: The optimizer's argument.
        rows: Rows of a batch on all replicas, if it is the same for all batches.
        context: The running `fit`, if there is one.

    Raises:
        ValueError: If some batch of the training cannot be cut into microbatches of
            one size, or if it cannot be seen that all can.
    """
    expected = None if context is None else context.batch_size
    if num_microbatches == expected:
        # A lot of `poisson_batches` has more rows than it is expected to hold.
        return 1
    batch = expected if rows is None else rows
    if batch is None:
        raise ValueError(
            "Argument `num_microbatches` needs batches of a known size: use "
            "`dataset.batch(n, drop_remainder=True)`. Received: "
            f"num_microbatches={num_microbatches} and batches of unknown size"
        )
    if batch % num_microbatches:
        raise ValueError(_does_not_divide(num_microbatches, batch, expected))
    group = batch // num_microbatches
    if rows is None and group > 1:
        _check_last_batch(num_microbatches, group, batch, context.rows_per_epoch)
    return group


def check_people(
    num_microbatches: int | None, rows: int | None, context: FitContext
) -> None:
    """Raises if the rows of a batch are not whole people.

    Args:
        num_microbatches: The optimizer's argument.
        rows: Rows of the batch on one replica.
        context: The running `fit`, whose data draw people.
    """
    if num_microbatches not in (None, context.batch_size):
        raise ValueError(
            "Argument `num_microbatches` must be None where people are drawn "
            "(`user_ids`): all rows of a person are one microbatch. "
            f"Received: num_microbatches={num_microbatches}"
        )
    if rows is None or rows % context.rows_per_unit:
        raise ValueError(
            "The rows of a person must stay together, "
            f"{context.rows_per_unit} in each batch of each replica: use a number of "
            "replicas that divides the people of a batch, and keep shapes static "
            f"behind the sampler. Received: batches of {rows} rows"
        )


def _does_not_divide(num_microbatches: int, batch: int, expected: int | None) -> str:
    if expected in (None, batch):
        return (
            "Argument `num_microbatches` must divide the batch. Received: "
            f"num_microbatches={num_microbatches} for {batch} examples"
        )
    return (
        f"Argument `num_microbatches` must divide the {batch} rows of a batch: "
        f"{expected} examples are expected, and a lot has room for more. Leave "
        "`num_microbatches` out for one microbatch per example, which needs the least "
        "noise, or pass a multiple of it as `physical_batch_size` of the pipeline. "
        f"Received: num_microbatches={num_microbatches}"
    )


def _check_last_batch(
    num_microbatches: int, group: int, batch: int, rows_per_epoch: int | None
) -> None:
    if rows_per_epoch is not None and rows_per_epoch % batch % group == 0:
        return
    last = (
        "may be smaller"
        if rows_per_epoch is None
        else f"has {rows_per_epoch % batch} examples"
    )
    raise ValueError(
        f"Argument `num_microbatches` makes microbatches of {group} examples, but the "
        f"last batch of an epoch {last}, which cannot be cut into them. Leave "
        "`num_microbatches` out for one microbatch per example, which needs the least "
        f"noise, or use `dataset.batch({batch}, drop_remainder=True)`. Received: "
        f"num_microbatches={num_microbatches} and batches of {batch}"
    )
