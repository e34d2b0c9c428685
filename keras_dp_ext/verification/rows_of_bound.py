"""The rows that a bound is given, added up with other coefficients for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.requests import ChunkLoop, GivenRows
from keras_dp_ext.verification import agreement
from keras_dp_ext.verification.graph_function import GraphFunction, as_floats

StandIn = Callable[[tf.Tensor], tf.Tensor]


class RowsOfBound:
    """Runs what materialises rows, up to the map that bounds them.

    The map itself is not linear, and would hide an error: a tangent saturates, a clamp
    cuts off. In its place the rows are multiplied by given coefficients and added up.
    A loop over chunks is run from here, pass by pass, by the ops of its own body and
    condition.

    Args:
        given: Rows that a map was given.

    Attributes:
        outputs: What the function of the step must return.
    """

    def __init__(self, given: GivenRows):
        self._loop = None if given.loop is None else _Loop(given.loop, given.rows)
        self.outputs = given.rows if self._loop is None else self._loop.outer
        self._unjoin = None
        if given.values is not None:
            self._unjoin = GraphFunction(given.sums, given.values)

    def functions(self) -> list[GraphFunction]:
        """Everything that is run here."""
        loop = [] if self._loop is None else self._loop.functions()
        return loop if self._unjoin is None else [*loop, self._unjoin]

    def weighted_sums(
        self,
        values: Sequence[tf.Tensor],
        coefficients: np.ndarray,
        stand_in: StandIn,
        double: bool,
    ) -> list[list[np.ndarray]]:
        """For each way to cut rows into chunks, a sum for each variable.

        Args:
            values: What the function returned for `outputs`.
            coefficients: `[rows]`.
            stand_in: Gives what takes the place of a captured tensor.
            double: In float64.
        """
        if self._loop is None:
            ways = [[(0, list(values))]]
        else:
            ways = self._loop.ways(values, coefficients, stand_in, double)
        found = []
        for chunks in ways:
            totals = _add_up(chunks, coefficients)
            if self._unjoin is not None:
                fed = [tf.constant(total) for total in totals]
                results = self._unjoin(fed, stand_in, double)
                totals = list(map(as_floats, results))
            found.append(totals)
        return found


class _Loop:
    """A loop over chunks, of which each pass can be run by itself."""

    def __init__(self, loop: ChunkLoop, rows: Sequence[tf.Tensor]):
        op = loop.result.op
        while op.type == "Identity":
            op = op.inputs[0].op
        body, condition = loop.start.graph, loop.more.graph
        self._place = _index(body.inputs, loop.done)
        self._rows = _Part(body.inputs, list(rows), op)
        self._step = _Part(body.inputs, [loop.start, body.outputs[self._place]], op)
        self._condition = _Part(condition.inputs, [loop.more], op)
        parts = (self._rows, self._step, self._condition)
        self._needed = sorted({place for part in parts for place in part.places})
        self.outer = [op.inputs[place] for place in self._needed]
        self._chunk = None if loop.chunk is None else _index(op.inputs, loop.chunk)

    def functions(self) -> list[GraphFunction]:
        return [part.function for part in (self._rows, self._step, self._condition)]

    def ways(
        self,
        values: Sequence[tf.Tensor],
        coefficients: np.ndarray,
        stand_in: StandIn,
        double: bool,
    ) -> list:
        """Chunks as the loop cuts them, and smaller ones, where it can be asked to.

        Few rows are one chunk. One that begins further down the batch, and does not
        take rows twice that it shares with the one before, must show, too.
        """
        variables = dict(zip(self._needed, values, strict=True))
        cuts = [variables]
        if self._chunk is not None and int(variables[self._chunk]) > 1:
            chunk = 2 * int(variables[self._chunk]) // 3
            cuts.append({**variables, self._chunk: tf.constant(chunk)})
        return [self._chunks(cut, coefficients, stand_in, double) for cut in cuts]

    def _chunks(
        self,
        variables: dict[int, tf.Tensor],
        coefficients: np.ndarray,
        stand_in: StandIn,
        double: bool,
    ) -> Iterator[tuple[int, list[tf.Tensor]]]:
        """The first row and the rows of each chunk with a coefficient that is not 0.

        One at a time, as in the step: all of them would not fit into memory.
        """
        variables = dict(variables)
        while bool(self._condition.run(variables, stand_in, double)[0]):
            start, done = self._step.run(variables, stand_in, double)
            if coefficients[int(start) : int(done)].any():
                yield int(start), self._rows.run(variables, stand_in, double)
            variables[self._place] = done


class _Part:
    """Body or condition of a loop, as a function of those variables that it uses."""

    def __init__(
        self, inputs: Sequence[tf.Tensor], outputs: list[tf.Tensor], op: tf.Operation
    ):
        if len(inputs) != len(op.inputs):
            raise ValueError(f"Cannot read the loop {op.name}.")
        used = {id(one) for op in graph_lib.ancestors(outputs) for one in op.outputs}
        self.places = [n for n, one in enumerate(inputs) if id(one) in used]
        self.function = GraphFunction([inputs[n] for n in self.places], outputs)

    def run(
        self, variables: dict[int, tf.Tensor], stand_in: StandIn, double: bool
    ) -> list[tf.Tensor]:
        values = [variables[place] for place in self.places]
        return self.function(values, stand_in, double)


def _index(tensors: Sequence[tf.Tensor], wanted: tf.Tensor) -> int:
    return next(n for n, tensor in enumerate(tensors) if tensor is wanted)


def _add_up(
    chunks: Iterable[tuple[int, list[tf.Tensor]]], coefficients: np.ndarray
) -> list[np.ndarray]:
    totals: list[np.ndarray] = []
    for start, rows in chunks:
        arrays = list(map(as_floats, rows))
        part = coefficients[start : start + len(arrays[0])]
        if not totals:
            totals = [np.zeros(array.shape[1:], array.dtype) for array in arrays]
        # Not by a product of matrices: often all but one are 0, and NumPy would start
        # threads that wait busily.
        for array, total in zip(arrays, totals, strict=True):
            for row in np.flatnonzero(part):
                agreement.add_multiple(total, array[row], part[row])
    return totals
