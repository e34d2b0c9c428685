"""What an optimizer is told while Keras' training step runs on a part of a batch."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_LOCAL = threading.local()


class StopAtLossError(Exception):
    """The forward pass is traced, and no more was wanted."""


@dataclasses.dataclass
class RowsUnderWay:
    """A part of a batch whose step is being traced, and what comes out of it.

    Attributes:
        optimizer: Whose batch it is.
        fits: Whether it is all of the batch: the step is an ordinary one.
        forward_only: Whether only the loss is wanted.
        data: The batch, cut to these rows.
        loss: The loss, if only that is wanted.
        sums: Bounded gradients and statistics, summed over the rows.
        penalties: Gradients of penalties on the weights.
        variables: What `sums` are gradients of.
        group: Examples per microbatch.
    """

    optimizer: Any
    fits: bool = False
    forward_only: bool = False
    data: Any = None
    loss: tf.Tensor | None = None
    sums: Sequence[tf.Tensor] = ()
    penalties: Sequence[tf.Tensor] = ()
    variables: Sequence[Any] = ()
    group: int = 1

    def begin(self, data: Any) -> None:
        """A trace of the step on these rows begins."""
        self.data = data
        self.sums, self.penalties, self.variables = (), (), ()

    def keep(
        self,
        sums: Sequence[tf.Tensor],
        penalties: Sequence[tf.Tensor],
        variables: Sequence[Any],
        group: int,
    ) -> None:
        """Takes what would be released, had the batch no other parts."""
        if self.sums:
            raise ValueError(
                "Keras' training step makes two updates on one batch, which cannot be "
                "done in parts. Leave `physical_batch_size` and `memory_limit` out."
            )
        self.sums, self.penalties = list(sums), list(penalties)
        self.variables, self.group = list(variables), group


@contextlib.contextmanager
def under_way(rows: RowsUnderWay) -> Iterator[None]:
    """Inside of it, the optimizer works on these rows, in this thread."""
    former = getattr(_LOCAL, "rows", None)
    _LOCAL.rows = rows
    try:
        yield
    finally:
        _LOCAL.rows = former


def rows_under_way(optimizer: Any) -> RowsUnderWay | None:
    """The part of a batch on which this optimizer works, or `None`."""
    rows = getattr(_LOCAL, "rows", None)
    return rows if rows is not None and rows.optimizer is optimizer else None


def check_fits(optimizer: Any, rows: int | None) -> None:
    """Refuses an update on a batch that is not cut into parts.

    Args:
        optimizer: The private optimizer.
        rows: Of the batch, if known.

    Raises:
        ValueError: If it may have more rows than may be worked on at a time.
    """
    most = optimizer.physical_batch_size
    if most is None and optimizer.memory_limit is None:
        return
    if most is not None and rows is not None and rows <= most:
        return
    under = rows_under_way(optimizer)
    if under is not None:
        return
    name = "memory_limit" if most is None else "physical_batch_size"
    raise ValueError(
        f"Argument `{name}` works in `model.fit` with Keras' own training step, which "
        "can be run on one part of a batch after the other (also by "
        "`super().train_step(data)`). A loop or `train_step` of your own takes smaller "
        "batches and `gradient_accumulation_steps`. Received: "
        f"{name}={getattr(optimizer, name)} and a batch of {rows or 'unknown'} rows"
    )


_UNITS = {"": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {_letter: 10 ** (3 * _power), f"{_letter}I": 2 ** (10 * _power)}


def bytes_of(limit: Any) -> int:
    """A number of bytes, also as "2GB" or "512 MiB".

    Example:

    >>> bytes_of("1.5 GB"), bytes_of("1MiB"), bytes_of(4096)
    (1500000000, 1048576, 4096)
    """
    size: Any = limit
    if isinstance(limit, str):
        found = re.fullmatch(
            r"\s*(\d+\.?\d*)\s*(?:([KMGT])(i?))?B\s*", limit, re.IGNORECASE
        )
        if found:
            number, unit, binary = found.groups("")
            size = int(float(number) * _UNITS[(unit + binary).upper()])
    is_number = isinstance(size, numbers.Integral) and not isinstance(size, bool)
    if not is_number or size < 1:
        raise ValueError(
            'Argument `memory_limit` must be a number of bytes, or a text like "2GB" '
            f'or "512MiB". Received: memory_limit={limit}'
        )
    return int(size)
