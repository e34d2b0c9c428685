"""What a private step takes in memory, from a trace of its forward pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.chunks import chunk_bytes
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.trip_count import trip_count
from keras_dp_ext.gradients.rules.convolution.filter_gradients import kept_elements

# Whose results share the memory of their inputs.
_VIEWS = frozenset(
    {
        "CheckNumerics",
        "EnsureShape",
        "ExpandDims",
        "Identity",
        "IdentityN",
        "PreventGradient",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
    }
)

# Results of the forward pass, and as much again for the gradients of these, all of which
# wait for the last norm.
_COPIES_OF_RESULTS = 2

# Sums of a part and of all parts, noise, the noised sum, its average and the update.
_COPIES_OF_WEIGHTS = 6

# Chunks that are under way at a time, and what they are made of.
_CHUNKS = 16


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Bytes that a private step takes beside what the process holds already.

    Attributes:
        of_each_row: For each row that is worked on at a time.
        fixed: However few rows these are.
    """

    of_each_row: int
    fixed: int

    @classmethod
    def of(cls, loss: Any, rows: int, variables: Sequence[Any]) -> StepMemory:
        """An estimate that is rather too high.

        Args:
            loss: Of a forward pass on `rows` rows, in the graph where it was traced.
            rows: Their number.
            variables: The trainable variables.
        """
        sizes = [math.prod(variable.shape) for variable in variables]
        kept = sum(size for size in sizes if size <= kept_elements())
        results = _bytes_from_data(loss)
        return cls(
            math.ceil(_COPIES_OF_RESULTS * results / rows) + 4 * kept,
            _COPIES_OF_WEIGHTS * 4 * sum(sizes) + _CHUNKS * chunk_bytes(),
        )

    def rows_within(self, limit: int) -> int:
        """How many rows fit into `limit` bytes.

        Raises:
            ValueError: If not even one does.
        """
        rows = (limit - self.fixed) // self.of_each_row
        if rows < 1:
            least = self.fixed + self.of_each_row
            raise ValueError(
                "Argument `memory_limit` must leave room for one row: for this model "
                f"at least {math.ceil(least / 10**6)} MB, of which "
                f"{math.ceil(self.fixed / 10**6)} MB are for sums and noise of the "
                f"size of the weights. Received: memory_limit={limit} bytes"
            )
        return int(rows)


def _bytes_from_data(loss: tf.Tensor) -> int:
    """Bytes of everything in a forward pass that depends on the data."""
    ops = graph_lib.ancestors([loss])
    dependent = graph_lib.data_dependent(ops)
    total = 0
    for op in ops:
        if not any(id(tensor) in dependent for tensor in op.outputs):
            continue
        if op.type not in _VIEWS and op.type != "Placeholder":
            total += _bytes_of_outputs(op)
        total += _bytes_inside(op, dependent)
    return total


def _bytes_inside(op: tf.Operation, dependent: Any) -> int:
    """Bytes that the functions called by an op compute, in all of their runs."""
    if op.type in graph_lib.LOOP_OPS:
        count = trip_count(op, list(op.inputs), dependent)
        if not isinstance(count, int):
            count = None if count is None else tf.get_static_value(count)
        if count is None:
            raise ValueError(
                "It cannot be seen how often a loop of the model runs, and so not how "
                "much memory it takes. Pass `physical_batch_size`, the number of rows "
                f"to work on at a time, in place of `memory_limit`. Received: {op.name}"
            )
        runs, graphs = int(count), [graph_lib.function_graph(op, "body")]
    else:
        runs, graphs = 1, graph_lib.called_graphs(op)
    return runs * sum(_bytes_of_graph(graph) for graph in graphs if graph is not None)


def _bytes_of_graph(graph: Any) -> int:
    return sum(
        _bytes_of_outputs(op) + sum(map(_bytes_of_graph, graph_lib.called_graphs(op)))
        for op in graph.get_operations()
        if op.type not in _VIEWS and op.type not in ("Placeholder", "Const")
    )


def _bytes_of_outputs(op: tf.Operation) -> int:
    return sum(
        tensor.shape.num_elements() * tensor.dtype.size
        for tensor in op.outputs
        if tensor.dtype not in (tf.resource, tf.variant, tf.string)
        and tensor.shape.num_elements() is not None
    )
