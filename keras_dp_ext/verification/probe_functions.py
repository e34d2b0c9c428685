"""The ops of a training step as functions that the probe can call."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.one_loss_per_example import rows_are_not_examples_error
from keras_dp_ext.verification.draws import draws_from_data, hidden_draws
from keras_dp_ext.verification.graph_function import GraphFunction, as_floats
from keras_dp_ext.verification.rows_of_bound import RowsOfBound
from keras_dp_ext.verification.variable_copies import VariableCopies
from keras_dp_ext.verification.writes import only_reads


@dataclasses.dataclass(frozen=True)
class GradientResult:
    """Gradients of `sum_b w_b loss_b`, as NumPy arrays.

    Attributes:
        norms_squared: For each time that norms were asked for, `[rows]`.
        sums: For each time that sums or rows were asked for, one for each variable.
        truth: The ordinary gradients, for each variable.
        inputs: The ordinary gradients with respect to float inputs.
    """

    norms_squared: list[np.ndarray]
    sums: list[list[np.ndarray]]
    truth: list[np.ndarray]
    inputs: list[np.ndarray]

    def is_finite(self) -> bool:
        return all(np.isfinite(value).all() for value in (*self.truth, *self.inputs))


class ProbeFunctions:
    """Runs parts of a graph that is being traced, on other data and variables.

    Args:
        losses: `[batch]`, in that graph.
        sources: Through which data enters.
        variables: The trainable variables.
        gradients: The engine's gradients, of which the training step has asked what
            it needs: these very norms, sums and rows are tested.
        group: Examples per microbatch.
    """

    def __init__(
        self,
        losses: tf.Tensor,
        sources: Sequence[tf.Tensor],
        variables: Sequence[Any],
        gradients: Any,
        group: int,
    ):
        self._sources = list(sources)
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._group = group
        self._weights_type = losses.dtype
        self.forward_ops = graph_lib.ancestors([losses], stop=set(map(id, sources)))
        self._draws = hidden_draws(self.forward_ops, self._sources)
        self._inputs = [*self._sources, *self._draws]
        self.forward = GraphFunction(self._inputs, [losses])
        self._draw = GraphFunction(self._sources, self._draws) if self._draws else None
        self._norms, self._sums, given = _asked_for(gradients, losses.graph)
        self._rows = [RowsOfBound(one) for one in given]
        self._coefficients = _unique(c for one in self._sums for c in one.coefficients)
        self._scales = _unique(
            scale
            for one in self._norms
            for scale in one.scales or []
            if scale is not None
        )
        ordinary = gradients.ordinary
        self._with_truth = ordinary.is_known
        truth, of_inputs = ordinary.of_variables, ordinary.of_sources
        self._truth = None
        if not self._with_truth:
            self._truth, truth, of_inputs = _truth_apart(
                losses, self._inputs, self._sources, variables, self.forward_ops
            )
        self._truth_places = [n for n, one in enumerate(truth) if one is not None]
        self._inputs_count = len(of_inputs)
        found = [truth[number] for number in self._truth_places] + of_inputs
        outputs = [losses, *(one.values for one in self._norms)]
        outputs += [value for one in self._sums for value in one.values]
        outputs += [value for one in self._rows for value in one.outputs]
        self._rules = GraphFunction(
            [*self._inputs, ordinary.weights, *self._coefficients, *self._scales],
            outputs + (found if self._with_truth else []),
        )
        if not self._with_truth:
            self._truth.finish(found)
        self._frozen: list[tf.Tensor] = []

    def functions(self) -> list[GraphFunction]:
        """Everything that a verdict depends on."""
        truth = [] if self._truth is None else [self._truth.function]
        rows = [function for one in self._rows for function in one.functions()]
        return [self.forward, self._rules, *truth, *rows]

    def use(self, copies: VariableCopies) -> None:
        """Lets the functions run on other variables than the real ones."""
        self._copies = copies
        self._writes = not all(map(only_reads, self.forward_ops))

    def check_number_of_losses(self, losses: tf.Tensor, batch: int) -> None:
        """Raises unless there is one for each example."""
        if losses.shape[0] != batch:
            raise rows_are_not_examples_error(self._sources[0], losses.shape, batch)

    @property
    def has_hidden_draws(self) -> bool:
        return bool(self._draws)

    def draw_from_data(self) -> tf.Operation | None:
        """An op that draws from data: its numbers cannot be held."""
        return next(iter(draws_from_data(self.forward_ops, self._sources)), None)

    def freeze_draws(self, data: Sequence[tf.Tensor]) -> None:
        """Draws once what ops without a seed draw anew in each run."""
        if self._draw is not None:
            self._frozen = self._draw(data, self._copies.stand_in)

    def losses(self, data: Sequence[tf.Tensor]) -> np.ndarray:
        self._restore()
        values = [*data, *self._frozen]
        return self.forward(values, self._copies.stand_in)[0].numpy()

    def draw_scales(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Random scales for the norms that divide each coordinate by one."""
        return [
            generator.uniform(0.5, 2.0, scale.shape).astype(np.float32)
            for scale in self._scales
        ]

    def scales_of(self, scales: Sequence[np.ndarray]) -> list[list]:
        """The scale of each variable, for each of the norms that were asked for."""
        fed = dict(zip(map(id, self._scales), scales, strict=True))
        return [
            [
                1.0 if scale is None else fed.get(id(scale), scale)
                for scale in one.scales or [None] * len(self._shapes)
            ]
            for one in self._norms
        ]

    def places_of_norms(self) -> list[list[int]]:
        """Numbers of the variables that each of the norms goes over."""
        everywhere = list(range(len(self._shapes)))
        return [everywhere if one.places is None else one.places for one in self._norms]

    def gradients(
        self,
        data: Sequence[tf.Tensor],
        weights: np.ndarray,
        coefficients: np.ndarray,
        scales: Sequence[np.ndarray],
        double: bool = False,
    ) -> GradientResult:
        """Norms, sums and ordinary gradients.

        Args:
            data: A value for each source.
            weights: `[rows]`, of the losses.
            coefficients: `[rows]`, of the sums.
            scales: As `draw_scales` made them.
            double: In float64.
        """
        self._restore()
        stand_in = self._copies.wide_stand_in if double else self._copies.stand_in
        each = np.repeat(weights, self._group) / self._group
        each = tf.cast(tf.constant(each, tf.float32), self._weights_type)
        values = [*data, *self._frozen]
        fed = [tf.constant(coefficients, tf.float32)] * len(self._coefficients)
        fed += [tf.constant(scale) for scale in scales]
        results = self._rules([*values, each, *fed], stand_in, double)
        if self._truth is not None:
            results += self._truth.function([*values, each], stand_in, double)
        self.check_number_of_losses(results[0], len(each))
        rest = iter(results[1:])

        def following(count: int) -> list[np.ndarray]:
            return [as_floats(value) for value in itertools.islice(rest, count)]

        norms = following(len(self._norms))
        sums = [following(len(one.values)) for one in self._sums]
        for one in self._rows:
            values = list(itertools.islice(rest, len(one.outputs)))
            sums += one.weighted_sums(values, coefficients, stand_in, double)
        truth = [np.zeros(shape, np.float32) for shape in self._shapes]
        found = following(len(self._truth_places))
        for number, value in zip(self._truth_places, found, strict=True):
            truth[number] = value
        return GradientResult(norms, sums, truth, following(self._inputs_count))

    def every_float(self) -> tuple[list[tf.Tensor], Callable]:
        """All float tensors of the forward pass, and a function of their values."""
        tensors = [
            output
            for op in self.forward_ops
            for output in op.outputs
            if output.dtype.is_floating and output.shape.rank
        ]
        function = GraphFunction(self._inputs, tensors)

        def evaluate(data: Sequence[tf.Tensor]) -> Any:
            self._restore()
            return function([*data, *self._frozen], self._copies.stand_in)

        return tensors, evaluate

    def _restore(self) -> None:
        if self._writes:
            self._copies.restore()

    def forget(self) -> None:
        """Frees the memory of all functions."""
        draw = [] if self._draw is None else [self._draw]
        for function in (*self.functions(), *draw):
            function.forget()


def _asked_for(gradients: Any, graph: Any) -> tuple[list, list, list]:
    """Norms, sums and rows that the step needs.

    Some cannot be tested as they are: those in a branch, norms in units that cannot be
    replaced, sums with fixed coefficients. The same of another copy take their place.
    """
    asked = (gradients.norms, gradients.sums, gradients.given)
    norms = [
        one
        for one in gradients.norms
        if one.values.graph is graph and all(map(_can_feed, one.scales or []))
    ]
    sums = [
        one
        for one in gradients.sums
        if one.values[0].graph is graph
        and all(map(graph_lib.is_symbolic, one.coefficients))
    ]
    given = [one for one in gradients.given if one.sums[0].graph is graph]
    is_missing = [
        len(usable) < len(all_of_them)
        for usable, all_of_them in zip((norms, sums, given), asked, strict=True)
    ]
    # Norms alone make no release: something else was done to the gradients.
    is_unknown = not sums and not given
    if any(is_missing) or is_unknown:
        fresh = gradients.copy()
        if is_missing[0] or is_unknown:
            fresh.norm_squared()
        if is_missing[1] or is_unknown:
            fresh.weighted_sum(tf.zeros([fresh.num_rows]))
        if is_missing[2]:
            fresh.sum_of(lambda rows: rows, result_shapes=fresh.shapes)
        norms, sums = norms + fresh.norms, sums + fresh.sums
        given = given + fresh.given
    return norms, sums, given


def _can_feed(scale: Any) -> bool:
    return scale is None or (
        isinstance(scale, tf.Tensor)
        and graph_lib.is_symbolic(scale)
        and scale.shape.is_fully_defined()
    )


def _unique(tensors: Any) -> list[tf.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


class _TruthApart:
    """Ordinary gradients in a graph of their own.

    Gradients of loops, branches and calls change the op itself, and that of the
    training step must stay as it is.
    """

    def __init__(self, inputs: Sequence[tf.Tensor]):
        self._inputs = inputs
        self.function: GraphFunction | None = None

    def finish(self, outputs: Any) -> None:
        self.function = GraphFunction(self._inputs, outputs)


def _truth_apart(
    losses: tf.Tensor,
    inputs: Sequence[tf.Tensor],
    sources: Sequence[tf.Tensor],
    variables: Sequence[Any],
    ops: Iterable[tf.Operation],
) -> Any:
    graph = losses.graph
    scratch = tf_internals.scratch_graph("probe")
    with scratch.as_default():
        weights = tf.compat.v1.placeholder(losses.dtype, losses.shape)
        # Placeholders, not captures: these are given in each run.
        replaced = {
            id(tensor): tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
            for tensor in inputs
        }
        given = list(replaced.values())
        handles = graph_lib.handles_in_graph(variables, graph)
        starts = [op.outputs[0] for op in ops if op.type == "Placeholder"]
        for tensor in (*starts, *(handle for handle in handles if handle is not None)):
            if id(tensor) not in replaced:
                replaced[id(tensor)] = tf_internals.capture(scratch, tensor)
        copies = copies_lib.copy_ops(ops, replaced, retrace=True)
        handles = [None if h is None else replaced[id(h)] for h in handles]
        floats = [
            replaced[id(tensor)] for tensor in sources if tensor.dtype.is_floating
        ]
        found = _gradients(copies[id(losses)], [*handles, *floats], weights)
    truth, of_inputs = found[: len(handles)], found[len(handles) :]
    of_inputs = [value for value in of_inputs if value is not None]
    return _TruthApart([*given, weights]), truth, of_inputs


def _gradients(losses: tf.Tensor, xs: Any, weights: Any) -> list[tf.Tensor | None]:
    """Dense gradients; `None` with respect to what plays no part."""
    present = [x for x in xs if x is not None]
    found = iter(tf.gradients(losses, present, grad_ys=weights))
    gradients = [None if x is None else next(found) for x in xs]
    return [g if g is None else tf.convert_to_tensor(g) for g in gradients]
