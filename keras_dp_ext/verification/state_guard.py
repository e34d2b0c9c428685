"""Refuses state that the training step writes from the data.

Moving statistics, the state of a stateful recurrent layer, a running mean inside a
loss: what is written from the data is released with the model or flows into later
steps, and nobody bounded or noised it. So only what is known to be harmless may be
written from the data: the optimizer's own variables, the weights by the private
update itself, and metrics, which no loss may read.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification import writes

_ATTRIBUTE = "_keras_dp_ext_state_guard"


def check_state_updates(losses: tf.Tensor, model, own: Iterable) -> StateGuard:
    """Rejects what the forward pass writes from the data.

    Args:
        losses: A tensor of the graph that is being traced.
        model: The model, if known: its metrics may change freely.
        own: The optimizer's variables.

    Returns:
        The guard of the graph. Everything up to its `finish` counts as part of the
        private update; what follows in the graph is watched op by op.

    Raises:
        ValueError: Naming the variable.
    """
    guard = getattr(losses.graph, _ATTRIBUTE, None)
    if guard is None:
        guard = StateGuard(losses.graph)
        setattr(losses.graph, _ATTRIBUTE, guard)
    guard.begin(losses, model, own)
    return guard


class StateGuard:
    """Follows the data through a graph under construction, up to what it writes."""

    def __init__(self, graph):
        self._graph = graph
        self._model = lambda: None
        self._own: set[int] = set()
        self._metrics: dict[int, str] = {}
        self._losses: list[tf.Tensor] = []
        self._dependent: set[int] = set()
        self._of_private_updates: set[tf.Operation] = set()
        self._updating_threads: set[int] = set()
        self._watches_new_ops = False

    def begin(self, losses, model, own) -> None:
        """Checks the graph so far; what follows is the private update."""
        if model is not None:
            self._model = weakref.ref(model)
        self._own.update(id(graph_lib.variable_handle(variable)) for variable in own)
        self._losses.append(losses)
        self._allow_metrics()
        ops = self._graph.get_operations()
        sources = graph_lib.data_sources(ops, losses.shape[0])
        self._dependent = {id(source) for source in sources}
        for op in ops:
            self._visit(op)
        if model is not None:
            self._watch_new_ops()
        self._updating_threads.add(threading.get_ident())

    def finish(self) -> None:
        """The private update is complete."""
        self._updating_threads.discard(threading.get_ident())

    def _watch_new_ops(self) -> None:
        """Lets every op that is added to the graph pass by here.

        Published training steps often update their statistics after the weights.
        An exception while they are traced comes before anything has run.
        """
        if self._watches_new_ops:
            return
        self._watches_new_ops = True
        create = self._graph._create_op_internal

        def create_and_visit(*args, **kwargs):
            op = create(*args, **kwargs)
            if self._is_private_update():
                self._of_private_updates.add(op)
            self._visit(op)
            return op

        self._graph._create_op_internal = create_and_visit

    def _is_private_update(self) -> bool:
        if threading.get_ident() in self._updating_threads:
            return True
        # Replicas wait inside their update while all of them are updated at once.
        return bool(self._updating_threads) and tf.distribute.in_cross_replica_context()

    def _visit(self, op: tf.Operation) -> None:
        if op not in self._of_private_updates:
            for tensor in writes.written_from_data(op, self._dependent):
                self._check_written(op, tensor)
        if (
            op.type in graph_lib.DATA_OPS
            or graph_lib.passes_data_on(op, self._dependent)
            or self._reads_metric(op)
        ):
            self._dependent.update(id(output) for output in op.outputs)

    def _reads_metric(self, op: tf.Operation) -> bool:
        """What a metric holds is data, too."""
        return op.type == "ReadVariableOp" and (
            id(graph_lib.captured_source(op.inputs[0])) in self._metrics
        )

    def _check_written(self, op: tf.Operation, tensor: tf.Tensor) -> None:
        tensor = writes.behind_identities(tensor)
        if tensor.op.type not in ("Placeholder", "VarHandleOp"):
            return  # Made by the step itself, and gone with it: a TensorArray.
        handle = graph_lib.captured_source(tensor)
        if id(handle) in self._own or id(handle) in self._metrics:
            return
        self._allow_metrics()  # Keras builds some of them late.
        if id(handle) in self._metrics:
            return
        model = self._model()
        raise ValueError(
            f"The training step updates {self._name(handle, op)} from the data, "
            "without bound or noise, and it would be released with the model or "
            "change later updates. Replace BatchNormalization by "
            "GroupNormalization or LayerNormalization (or freeze it with "
            "`layer.trainable = False`), use no `stateful=True`, and keep no "
            "running statistics of the data in a layer, loss or model. "
            + (
                "If it belongs to a metric, call `optimizer.bind(model)` or update "
                "the metric after `minimize`."
                if model is None
                else "If it belongs to a metric, make the metric an attribute of the "
                "model."
            )
        )

    def _check_losses(self) -> None:
        """A metric is exact: a loss that reads it sees all earlier examples."""
        for op in graph_lib.ancestors(self._losses):
            if op.type != "Placeholder" or op.outputs[0].dtype != tf.resource:
                continue
            name = self._metrics.get(id(graph_lib.captured_source(op.outputs[0])))
            if name is not None:
                raise ValueError(
                    f"The loss reads the metric `{name}`, which holds statistics of "
                    "the data without bound or noise. Losses may depend on the "
                    "batch and on the weights only."
                )

    def _allow_metrics(self) -> None:
        model = self._model()
        if model is None:
            return
        for metric in model.metrics:
            for variable in metric.variables:
                handle = graph_lib.variable_handle(variable)
                self._metrics[id(handle)] = variable_name(variable)
        self._check_losses()

    def _name(self, handle, op: tf.Operation) -> str:
        model = self._model()
        for variable in [] if model is None else model.weights:
            if graph_lib.variable_handle(variable) is handle:
                return f"the weight `{variable_name(variable)}`"
        return f"a variable (by op `{op.name}`)"


def variable_name(variable) -> str:
    return getattr(variable, "path", None) or variable.name
