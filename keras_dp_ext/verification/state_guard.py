"""Refuses state that the training step writes from the data.

Moving statistics, the state of a stateful recurrent layer, a running mean inside a
loss, a learning rate that follows the loss: what is written from the data is released
with the model or flows into later steps, without bound or noise. So data may
be written to metrics only, which no loss may read, and to the sums of an unfinished
lot, by the private update. Everything else may depend on them through what was noised
(`released`). Nor may data decide whether an update happens.

The guard sees the graph of the losses and all graphs around it, from the first op to
the last, and everything that they call.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import keras_internals, op_creation, tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification import state_errors, writes
from keras_dp_ext.verification.data_flow import DataFlow
from keras_dp_ext.verification.graph_marks import marks_for, marks_of

# Resources that the step makes itself and that are gone with it.
_GONE_WITH_THE_STEP = frozenset(
    {"AnonymousHashTable", "AnonymousMutableHashTable", "StackV2", "TensorArrayV3"}
)


@contextlib.contextmanager
def private_update(
    losses: tf.Tensor,
    model: Any,
    own: Iterable,
    exact: Iterable = (),
    trained: Iterable = (),
) -> Iterator[None]:
    """Guards the graph in which losses are computed, before and after an update.

    Everything inside of the `with` counts as part of the private update.

    Args:
        losses: A tensor of the graph that is being traced.
        model: The model, if known: its metrics may change freely.
        own: The optimizer's variables.
        exact: Those of them that hold exact sums of the data.
        trained: The variables that the update changes.

    Raises:
        ValueError: Naming the variable that is written from the data.
    """
    guard = StateGuard.of(losses.graph)
    guard.begin(losses, model, own, exact, trained)
    try:
        yield
    finally:
        guard.finish()


@contextlib.contextmanager
def rest_of_update(graph: Any) -> Iterator[None]:
    """What follows is the end of an update that `private_update` guards in inner graphs.

    Args:
        graph: The one that is being traced, around these.
    """
    guard = StateGuard.of(graph)
    guard.go_on()
    try:
        yield
    finally:
        guard.finish()


def released(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Tensors that noise covers: from here on they are no data any more."""
    tensors = list(tensors)
    if tf.executing_eagerly():
        return tensors
    graph = tf.compat.v1.get_default_graph()
    # A sum in this graph has one output and can be marked itself.
    tensors = [
        tensor
        if tensor.op.type == "AddV2" and tensor.graph is graph
        else tf.identity(tensor)
        for tensor in tensors
    ]
    for tensor in tensors:
        marks = marks_for(tensor.graph)
        marks.released.add(tensor.op)
        if marks.guard is not None:
            marks.guard.end_at(tensor.op)
    return tensors


class StateGuard:
    """Follows the data through graphs under construction, up to what they write."""

    def __init__(self) -> None:
        self._graphs: list = []  # The innermost first.
        self._model = lambda: None
        self._own: dict[int, str] = {}
        self._exact: dict[int, str] = {}
        self._trained: dict[int, str] = {}
        self._metrics: dict[int, str] = {}
        # Weights of the model are none, and are asked for often.
        self._no_metrics: set[int] = set()
        self._losses: list[tf.Tensor] = []
        self._flow = DataFlow()
        self._updating_threads: set[int] = set()
        self._is_before_update = False

    @staticmethod
    def of(graph: Any) -> StateGuard:
        """The guard of a graph and of all graphs around it; a new one if need be."""
        chain = list(_with_outer_graphs(graph))
        guards = [marks_of(one).guard for one in chain if marks_of(one).guard]
        guard = guards[0] if guards else StateGuard()
        op_creation.observe_new_ops(_visit_new_op)
        for one in chain:
            marks_for(one).guard = guard
            op_creation.require_observed(one)
        known = [one for one in guard._graphs if one not in chain]
        guard._graphs = [*known, *chain]
        return guard

    def begin(
        self, losses: tf.Tensor, model: Any, own: Any, exact: Any, trained: Any
    ) -> None:
        """Checks the graphs so far; what follows is the private update."""
        if model is not None:
            self._model = weakref.ref(model)
        self._own.update(_handles(own))
        self._exact.update(_handles(exact))
        self._trained.update(_handles(trained))
        self._losses.append(losses)
        self._is_before_update = True
        try:
            self._visit_all(losses)
        finally:
            self._is_before_update = False
        self._updating_threads.add(threading.get_ident())

    def go_on(self) -> None:
        """The private update has another part."""
        self._updating_threads.add(threading.get_ident())

    def finish(self) -> None:
        """The private update is complete."""
        self._updating_threads.discard(threading.get_ident())

    def _visit_all(self, losses: tf.Tensor | None = None) -> None:
        """Visits what the graphs hold already, the outermost graph first."""
        self._allow_metrics()
        self._check_losses()
        self._flow = DataFlow()
        graphs = [(graph, graph.get_operations()) for graph in reversed(self._graphs)]
        for _, ops in graphs:
            for op in ops:
                self._is_source(op)
            self._flow.visit_all(ops)
        if losses is not None and losses not in self._flow:
            # A custom loop may close over its data.
            for graph, ops in graphs:
                for op in ops:
                    if graph_lib.is_constant_with_rows(op, losses.shape[0]):
                        self._flow.add(op)
                self._flow.visit_all(graph.get_operations())
        for _, ops in graphs:
            for op in ops:
                self._check(op)

    def visit(self, op: tf.Operation) -> None:
        """Follows the data through an op that has just been made, and checks it."""
        for tensor in op.inputs:
            if tensor.op.type == "Placeholder":
                self._is_source(tensor.op)
        self._flow.visit(op)
        self._check(op)

    def _is_source(self, op: tf.Operation) -> bool:
        """Whether data enter by this placeholder, which is noted then."""
        if op.type != "Placeholder":
            return False
        tensor = op.outputs[0]
        if tensor in self._flow:
            return True
        outer = tf_internals.captured_from(tensor)
        if outer is not None and graph_lib.is_symbolic(outer):
            is_data = outer in self._flow or (
                outer.op.type == "Placeholder" and self._is_source(outer.op)
            )
        elif outer is not None:
            is_data = id(outer) in self._exact or self._is_metric(outer)
        else:
            # What a loop hands to its body is known when the loop is made.
            is_data = tensor.dtype not in (
                tf.resource,
                tf.variant,
            ) and not tf_internals.is_control_flow_body(op.graph)
        if is_data:
            self._flow.add(op)
        return is_data

    def end_at(self, op: tf.Operation) -> None:
        """Data go no further than up to this op."""
        self._flow.discard(op)

    def is_updating(self) -> bool:
        """Whether what is traced now is part of a private update."""
        if threading.get_ident() in self._updating_threads:
            return True
        # Replicas wait inside their update while all of them are updated at once.
        return bool(self._updating_threads) and tf.distribute.in_cross_replica_context()

    def _check(self, op: tf.Operation) -> None:
        for write in writes.written_from_data(op, self._flow):
            self._check_written(op, write)

    def _check_written(self, op: tf.Operation, write: writes.Write) -> None:
        tensor = writes.behind_identities(write.resource)
        if tensor.op.type in _GONE_WITH_THE_STEP:
            return
        handle = (
            graph_lib.captured_source(tensor)
            if tensor.op.type == "Placeholder"
            else None
        )
        if handle is None and tf_internals.is_control_flow_body(tensor.graph):
            return  # Checked again when the loop or branch is made.
        is_private = write.op in marks_of(write.op.graph).private
        if is_private and write.decided_by_data:
            raise state_errors.decided_by_data_error(op)
        if id(handle) in self._exact and is_private:
            return
        if id(handle) not in self._exact and self._is_metric(handle):
            return
        is_known = id(handle) in {**self._own, **self._exact, **self._trained}
        if not is_known and not self._is_before_update and self._model() is None:
            return  # It can't be told from a metric.
        raise state_errors.written_from_data_error(
            self._name(handle, op),
            is_model_known=self._model() is not None,
            is_of_optimizer=id(handle) in {**self._own, **self._exact},
        )

    def _is_metric(self, handle: tf.Tensor) -> bool:
        # A metric that holds a weight or the learning rate makes no metric of it.
        if any(
            id(handle) in names for names in (self._own, self._exact, self._trained)
        ):
            return False
        if id(handle) in self._metrics:
            return True
        if self._is_before_update or id(handle) in self._no_metrics:
            return False  # All metrics that there are have just been asked for.
        self._allow_metrics()  # Keras builds some of them late.
        return id(handle) in self._metrics

    def _check_losses(self) -> None:
        """A metric is exact: a loss that reads it sees all earlier examples."""
        for op in graph_lib.ancestors(self._losses):
            if op.type != "Placeholder" or op.outputs[0].dtype != tf.resource:
                continue
            name = self._metrics.get(id(graph_lib.captured_source(op.outputs[0])))
            if name is not None:
                raise state_errors.metric_in_loss_error(name)

    def _allow_metrics(self) -> None:
        model = self._model()
        if model is None:
            return
        before = len(self._metrics)
        weights = _handles(model.weights)
        for metric in model.metrics:
            for handle, name in _handles(metric.variables).items():
                if handle not in weights:
                    self._metrics[handle] = name
        self._no_metrics = set(weights)
        if len(self._metrics) > before:
            self._check_losses()

    def _name(self, handle: tf.Tensor, op: tf.Operation) -> str:
        for names in (self._own, self._exact):
            if id(handle) in names:
                return f"the optimizer's variable `{names[id(handle)]}`"
        model = self._model()
        names = dict(self._trained)
        names.update(_handles([] if model is None else model.weights))
        if id(handle) in names:
            return f"the weight `{names[id(handle)]}`"
        return f"a variable (by op `{op.name}`)"

    def continue_in(self, graph: Any) -> None:
        """Guards a graph that calls a private update traced before."""
        guard = StateGuard.of(graph)
        if guard is self:
            return
        guard._model = self._model
        for mine, theirs in (
            (guard._own, self._own),
            (guard._exact, self._exact),
            (guard._trained, self._trained),
        ):
            mine.update(theirs)
        guard._visit_all()


def _visit_new_op(op: tf.Operation) -> None:
    for called in graph_lib.called_graphs(op):
        guard = marks_of(called).guard
        if guard is not None and marks_of(op.graph).guard is not guard:
            guard.continue_in(op.graph)
    around = (marks_of(graph).guard for graph in _with_outer_graphs(op.graph))
    guard = next(filter(None, around), None)
    if guard is None:
        return
    if guard.is_updating() and graph_lib.is_stateful(op):
        marks_for(op.graph).private.add(op)
    if marks_of(op.graph).guard is guard:
        guard.visit(op)


def _with_outer_graphs(graph: Any) -> Iterator:
    while tf_internals.is_function_graph(graph):
        yield graph
        graph = tf_internals.outer_graph(graph)


def _handles(variables: Sequence[Any]) -> dict[int, str]:
    """The handles of variables, on all replicas, and their names."""
    return {
        id(component.handle): graph_lib.variable_name(variable)
        for variable in variables
        for component in keras_internals.components(variable)
    }
