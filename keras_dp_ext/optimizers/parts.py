"""A lot in parts: as many rows at a time as fit into memory, one update for all of them.

Keras' own training step runs on one part of the batch after the other, in a loop of the
graph. What an optimizer is handed there is bounded, row by row, and added up; the noise,
the division and the update come once, behind the loop. Bounds look at each row (or
microbatch) by itself, so that the sum is that of the whole batch, and the accounting is
that of one release: nothing of a part is released.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.gradients.rules.device import is_compiled
from keras_dp_ext.optimizers.build_scope import all_initialized
from keras_dp_ext.optimizers.memory_estimate import StepMemory
from keras_dp_ext.optimizers.private_step import add_to_lot
from keras_dp_ext.optimizers.rows_at_a_time import (
    RowsUnderWay,
    StopAtLossError,
    bytes_of,
    under_way,
)
from keras_dp_ext.optimizers.shared_lot import register_release
from keras_dp_ext.verification.state_guard import released, rest_of_update

_ROW_FOR_EACH = (
    "`physical_batch_size` and `memory_limit` cut batches into rows: all of their "
    "arrays must be dense and have a row for each example."
)

# A trace with these many rows tells what one row takes: a number that models take which
# want multiples of four or eight examples.
_TRIED_ROWS = 8


def train_step(model: keras.Model, data: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Keras' `train_step` on a batch, in parts where it has more rows than may be.

    Args:
        model: The model in `fit`, whose optimizer has `physical_batch_size` or
            `memory_limit`.
        data: The batch, of one replica.
        step: Keras' own `train_step(model, data)`.

    Returns:
        The logs of the whole batch.
    """
    optimizer = model.optimizer
    batch = _Batch.of(data)
    if batch is None or not all_initialized(model.trainable_variables):
        return step(model, data)  # Which says why it cannot be traced, or is not run.
    most = _most_rows(model, batch, step)
    if batch.rows is not None and batch.rows <= most:
        with under_way(RowsUnderWay(optimizer, fits=True)):
            return step(model, data)
    optimizer._ensure_built(model.trainable_variables)
    size = _size_of_parts(batch.rows, most, _rows_that_stay_together(optimizer))
    part = RowsUnderWay(optimizer)

    def of_part(*tensors: tf.Tensor) -> list[tf.Tensor]:
        # Metrics make their variables in the first trace, and TensorFlow makes another.
        part.begin(batch.with_tensors(tensors))
        with under_way(part):
            step(model, part.data)
        return [*part.sums, *part.penalties]

    traced = tf.function(of_part, autograph=False).get_concrete_function(
        *(
            tf.TensorSpec([size, *tensor.shape[1:]], tensor.dtype)
            for tensor in batch.tensors
        )
    )
    with rest_of_update(tf.compat.v1.get_default_graph()):
        totals = _sums_of_parts(batch, traced, size or most, size is not None, part)
        count = len(part.sums)
        register_release(optimizer, totals[0])
        add_to_lot(
            optimizer,
            totals[:count],
            # They depend on the weights alone, which the guard cannot see behind a loop.
            released(totals[count:]),
            part.variables,
            batch.rows,
            part.group,
            find_fit(optimizer),
        )
    return model.get_metrics_result()


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The tensors of a batch, each with a row for each example.

    Attributes:
        structure: The batch as Keras has it.
        tensors: What of it is not `None`.
    """

    structure: Any
    tensors: list[tf.Tensor]

    @classmethod
    def of(cls, data: Any) -> _Batch | None:
        """`None` in eager mode."""
        leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
        for leaf in leaves:
            if not isinstance(leaf, tf.Tensor) or not leaf.shape.rank:
                raise ValueError(
                    f"{_ROW_FOR_EACH} Received: {type(leaf).__name__} of shape "
                    f"{leaf.shape}"
                )
        if not leaves or not tf_internals.is_symbolic(leaves[0]):
            return None
        # Cut like the others, further rows would stand beside those of other examples.
        if len({leaf.shape[0] for leaf in leaves} - {None}) > 1:
            shapes = ", ".join(str(leaf.shape) for leaf in leaves)
            raise ValueError(f"{_ROW_FOR_EACH} Received: shapes {shapes}")
        return cls(data, leaves)

    @property
    def rows(self) -> int | None:
        """The number of rows, where it is known before the step runs."""
        known = {tensor.shape[0] for tensor in self.tensors} - {None}
        return known.pop() if known else None

    def with_tensors(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The structure with others in place of the tensors."""
        values = iter(tensors)
        return keras.tree.map_structure(
            lambda leaf: None if leaf is None else next(values), self.structure
        )

    def checked(self) -> _Batch:
        """Fails, when it runs, where a tensor has not a row for each example."""
        if all(tensor.shape[0] is not None for tensor in self.tensors):
            return self  # `of` has compared them.
        rows = tf.shape(self.tensors[0])[0]
        checks = [
            tf.debugging.assert_equal(tf.shape(other)[0], rows, message=_ROW_FOR_EACH)
            for other in self.tensors[1:]
        ]
        with tf.control_dependencies(checks):
            rows = tf.identity(rows)

        def with_rows(tensor: tf.Tensor) -> tf.Tensor:
            # XLA drops assertions, but refuses a shape that does not fit.
            shape = tf.concat([[rows], tf.shape(tensor)[1:]], axis=0)
            return tf.ensure_shape(tf.reshape(tensor, shape), tensor.shape)

        return dataclasses.replace(self, tensors=list(map(with_rows, self.tensors)))

    def rows_from(self, start: tf.Tensor, size: int | tf.Tensor) -> list[tf.Tensor]:
        """`size` rows of each tensor, from `start` on."""
        found = []
        for tensor in self.tensors:
            inner = tensor.shape.rank - 1
            # -1: all that there is. As a constant, where XLA needs one.
            sizes = [size, *[-1] * inner]
            rows = tf.slice(tensor, [start, *[0] * inner], sizes)
            static = size if isinstance(size, int) else None
            found.append(tf.ensure_shape(rows, [static, *tensor.shape[1:]]))
        return found


def _most_rows(model: keras.Model, batch: _Batch, step: Callable) -> int:
    """How many rows may be worked on at a time."""
    optimizer = model.optimizer
    if optimizer.physical_batch_size is not None:
        return int(optimizer.physical_batch_size)
    forward = RowsUnderWay(optimizer, forward_only=True)
    rows = batch.rows or _TRIED_ROWS

    def run(*tensors: tf.Tensor) -> None:
        with under_way(forward):
            step(model, batch.with_tensors(tensors))

    with contextlib.suppress(StopAtLossError):
        tf.function(run, autograph=False).get_concrete_function(
            *(tf.TensorSpec([rows, *t.shape[1:]], t.dtype) for t in batch.tensors)
        )
    memory = StepMemory.of(forward.loss, rows, model.trainable_variables)
    return memory.rows_within(bytes_of(optimizer.memory_limit))


def _rows_that_stay_together(optimizer: Any) -> int:
    """Rows of one person."""
    context: FitContext | None = find_fit(optimizer)
    return 1 if context is None else context.rows_per_unit


def _size_of_parts(rows: int | None, most: int, together: int) -> int | None:
    """A static number of rows for all parts; `None` if they differ by a row or so.

    Raises:
        ValueError: If parts must be of one size, and none is near to what fits.
    """
    known = rows is not None
    sizes = (
        [
            size
            for size in range(together, most + 1, together)
            if known and rows % size == 0
        ]
        if known
        else []
    )
    best = max(sizes, default=0)
    if 2 * best > most:
        return best
    if not is_compiled() and together == 1:
        return None
    if 4 * best > most:
        return best
    reason = (
        "XLA needs parts of one size"
        if together == 1
        else f"the {together} rows of a person stay together"
    )
    raise ValueError(
        f"A batch of {rows or 'unknown'} rows cannot be cut into equal parts of about "
        f"{most} rows, and {reason}. Pass a `physical_batch_size` that divides the "
        "rows of a batch (those of a sampler are its own `physical_batch_size`; with "
        "`dataset.batch`, use `drop_remainder=True`), or compile the model with "
        f"`jit_compile=False`. Received: parts of at most {most} of {rows} rows"
    )


def _sums_of_parts(
    batch: _Batch, traced: Any, most: int, equal: bool, part: RowsUnderWay
) -> list[tf.Tensor]:
    """Runs all parts, and returns their sums and the last one's penalties."""
    batch = batch.checked()
    rows = tf.shape(batch.tensors[0])[0]
    # An empty batch is a lot, too: its sums are those of no rows.
    parts = tf.maximum(1, -(-rows // most))
    count = len(part.sums)

    def body(number: tf.Tensor, *values: tf.Tensor) -> tuple:
        if equal:
            part_of_batch = batch.rows_from(number * most, most)
        else:
            # Sizes differ by one row at the most: a last part of a single row would
            # take as long as any other.
            least, more = rows // parts, rows % parts
            start = number * least + tf.minimum(number, more)
            size = least + tf.cast(number < more, tf.int32)
            part_of_batch = batch.rows_from(start, size)
        found = traced(*part_of_batch)
        added = [a + b for a, b in zip(values[:count], found[:count], strict=True)]
        return (number + 1, *added, *found[count:])

    start = [tf.zeros(t.shape, t.dtype) for t in (*part.sums, *part.penalties)]
    return list(
        tf.while_loop(
            lambda number, *_: number < parts,
            body,
            (tf.constant(0), *start),
            parallel_iterations=1,
        )[1:]
    )
