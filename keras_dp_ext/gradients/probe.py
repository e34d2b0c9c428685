"""The probe: before the first update, per-example gradients are put to the test.

A rule that gives a gradient to the wrong example, or a layer that mixes examples
(BatchNormalization), would void the guarantee without any visible sign. So while
the training step is traced, the very ops that will train are copied into a
function of their own and run on made-up data with the model's current weights:

1. For random weights `r`, `sum_b r_b g_b` must be the ordinary gradient of
   `sum_b r_b loss_b`: right rules, right order of the batch axis.
2. The norm of a row must be that of its ordinary gradient: right clipping.
3. With all other examples replaced, the loss and the gradient of an example must
   stay what they are: nothing mixes examples, before or behind the first weight.

A failure is a Python exception in `fit`, before anything has been updated, with
and without XLA (which would drop assertions inside the step).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients import graph as graph_lib
from keras_dp_ext.gradients.split import ASSUMED_BATCH


class Probe:
    """One test of an engine's result.

    Args:
        losses: `[batch]`, in the graph that is being traced.
        variables: The trainable variables.
        gradients: What the engine made of them.
        group: Examples per microbatch.
        passed: Fingerprints of graphs over the same variables that have passed;
            a second trace of the same step needs no second test.
    """

    def __init__(
        self,
        losses: tf.Tensor,
        variables: Sequence,
        gradients,
        group: int,
        passed: set[bytes],
    ):
        self._losses = losses
        self._variables = list(variables)
        self._gradients = gradients
        self._group = group
        self._passed = passed
        self._batch = losses.shape[0] or max(ASSUMED_BATCH, 4 * group)
        self._rows = self._batch // group
        self._ops = graph_lib.ancestors([losses])
        self._sources = graph_lib.data_sources(self._ops, losses.shape[0])

    def verify(self) -> None:
        """Raises `ValueError` if a per-example gradient is not what it claims."""
        fingerprint = self._fingerprint()
        if fingerprint in self._passed:
            return
        run = self._build()
        with tf.init_scope():
            for positive in (False, True):
                if self._passes(run, np.random.default_rng(0), positive):
                    self._passed.add(fingerprint)
                    return
        raise ValueError(
            "The model gives losses or gradients that are not finite for made-up "
            "inputs, so it cannot be verified that it treats every example by "
            "itself. Rescale the inputs inside the data pipeline instead of the "
            f"model. Received inputs: {[source.shape for source in self._sources]}"
        )

    def _fingerprint(self) -> bytes:
        """Everything that the forward graph is made of, attributes and constants."""
        digest = hashlib.sha256(str(self._group).encode())
        for op in self._ops:
            digest.update(op.node_def.SerializeToString(deterministic=True))
        return digest.digest()

    def _build(self):
        """A function `(inputs, r) -> losses, norms, weighted sums, truth`."""
        graph = self._losses.graph
        weights = tf.zeros([self._gradients.num_rows])
        copy = self._gradients.copy()
        norms = copy.norm_squared()
        sums = copy.weighted_sum(weights)
        rows = tf.reduce_mean(tf.reshape(self._losses, [-1, self._group]), axis=1)
        truth_graph, truth_weights, truth = self._truth(graph)
        captured = {id(inner): outer for outer, inner in truth_graph.captures}

        @tf.function(autograph=False)
        def run(inputs, r):
            replaced = dict(zip(map(id, self._sources), inputs, strict=True))
            replaced[id(weights)] = r
            wanted = [rows, norms, *sums, *captured.values()]
            wanted = [t for t in wanted if graph_lib.is_symbolic(t)]
            copies = _copy(graph_lib.ancestors(wanted), replaced)
            inner = {
                key: copies.get(id(outer), outer) for key, outer in captured.items()
            }
            inner[id(truth_weights)] = r
            truth_copies = _copy(graph_lib.ancestors(truth), inner)
            return (
                copies[id(rows)],
                copies[id(norms)],
                [copies[id(value)] for value in sums],
                [truth_copies[id(value)] for value in truth],
            )

        return run

    def _truth(self, graph):
        """The ordinary gradient of `sum_b r_b loss_b`, in a graph of its own.

        Of its own, because gradients of loops add outputs to the loop.
        """
        scratch = tf.__internal__.FuncGraph("probe")
        with scratch.as_default():
            r = tf.compat.v1.placeholder(tf.float32, [None])
            handles = {
                id(placeholder): scratch.capture(placeholder)
                for placeholder in (
                    graph_lib.handle_in_graph(variable, graph)
                    for variable in self._variables
                )
                if placeholder is not None
            }
            replaced = dict(handles)
            starts = [op.outputs[0] for op in self._ops if op.type == "Placeholder"]
            for tensor in (*starts, *self._sources):
                if id(tensor) not in replaced:
                    replaced[id(tensor)] = scratch.capture(tensor)
            copies = graph_lib.copy_ops(self._ops, replaced, retrace_loops=True)
            rows = tf.reduce_mean(
                tf.reshape(copies[id(self._losses)], [-1, self._group]), axis=1
            )
            xs = [
                handles.get(id(graph_lib.handle_in_graph(variable, graph)))
                for variable in self._variables
            ]
            found = tf.gradients(
                tf.reduce_sum(r * rows), [x for x in xs if x is not None]
            )
            found = iter(found)
            truth = []
            for x, variable in zip(xs, self._variables, strict=True):
                gradient = None if x is None else next(found)
                if gradient is None:
                    gradient = tf.zeros(variable.shape)
                truth.append(tf.cast(tf.convert_to_tensor(gradient), tf.float32))
        return scratch, r, truth

    def _made_up(self, generator, positive: bool) -> list[np.ndarray]:
        """Values for everything through which data enters the graph."""
        values = []
        for source in self._sources:
            shape = [
                (self._batch if axis == 0 else 3) if size is None else size
                for axis, size in enumerate(source.shape)
            ]
            if source.dtype == tf.string:
                value = np.full(shape, b"a")
            elif source.dtype == tf.bool:
                value = generator.integers(0, 2, shape).astype(bool)
            elif source.dtype.is_floating and positive:
                value = generator.uniform(0.1, 0.9, shape)
            elif source.dtype.is_floating:
                value = generator.normal(size=shape)
            else:
                # Small enough to be a valid token or class of any model.
                value = generator.integers(0, 2, shape)
            values.append(tf.constant(value, source.dtype))
        return values

    def _passes(self, run, generator, positive: bool) -> bool:
        """`False` if the result is not finite and says nothing."""
        data = self._made_up(generator, positive)
        others = self._made_up(generator, positive)
        r = generator.uniform(0.5, 1.5, self._rows).astype(np.float32)
        first = np.zeros(self._rows, np.float32)
        first[0] = 1.0
        first = tf.constant(first)

        _, norms, sums, truth = result = _numpy(run(data, first))
        new_data = self._with_other_examples(data, others)
        new_result = _numpy(run(new_data, first))
        if not all(_is_finite(one) for one in (result, new_result)):
            return False
        self._check_independence(result, new_result, data, new_data)
        for old_data, new_data in self._integer_extremes(data):
            try:
                pair = _numpy(run(old_data, first)), _numpy(run(new_data, first))
            except tf.errors.InvalidArgumentError:
                continue  # A vocabulary of less than four tokens.
            self._check_independence(*pair, old_data, new_data)
        self._compare(sums, truth, "gradient of one example")
        self._compare_norm(norms[0], truth)
        _, _, sums, truth = _numpy(run(data, tf.constant(r)))
        self._compare(sums, truth, "sum over the batch")
        return True

    def _check_independence(self, result, new_result, data, new_data) -> None:
        """Raises if the first example sees that the others have changed."""
        # The same ops on the same row: only a difference of rounding is innocent.
        tolerance = 0.01 * self._tolerance
        if not _close(result[0][:1], new_result[0][:1], tolerance):
            raise self._mixing_error(data, new_data, None)
        truth, new_truth = result[3], new_result[3]
        scale = max(np.max(np.abs(value), initial=0) for value in truth)
        for variable, old, new in zip(self._variables, truth, new_truth, strict=True):
            if not _close(old, new, tolerance, scale):
                raise self._mixing_error(data, new_data, variable)

    def _with_other_examples(self, data, others):
        """All examples but the first replaced; integers certainly by others."""
        return [
            self._keep_first(value, 1 - value if source.dtype.is_integer else other)
            for source, value, other in zip(self._sources, data, others, strict=True)
        ]

    def _integer_extremes(self, data):
        """Pairs of inputs between which a minimum, or a maximum, of tokens moves.

        Random tokens of 0 and 1 leave the extremes of a batch what they are.
        """
        tokens = [s.dtype.is_integer and (s.shape.rank or 0) > 1 for s in self._sources]
        if not any(tokens):
            return

        def filled(constant):
            return [
                tf.fill(value.shape, tf.cast(constant, value.dtype))
                if is_token
                else value
                for is_token, value in zip(tokens, data, strict=True)
            ]

        base = filled(1)
        for constant in (0, 3):
            others = filled(constant)
            yield (
                base,
                [self._keep_first(a, b) for a, b in zip(base, others, strict=True)],
            )

    def _keep_first(self, values: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        """The first microbatch of `values`, the rest of `others`."""
        if values.shape.rank == 0 or values.shape[0] != self._batch:
            return values
        return tf.concat([values[: self._group], others[self._group :]], axis=0)

    @property
    def _tolerance(self) -> float:
        halves = (tf.float16, tf.bfloat16)
        if any(output.dtype in halves for op in self._ops for output in op.outputs):
            return 5e-2
        return 1e-3

    def _compare(self, sums, truth, what: str) -> None:
        scale = max(np.max(np.abs(value), initial=0) for value in truth)
        for variable, computed, expected in zip(
            self._variables, sums, truth, strict=True
        ):
            if not _close(computed, expected, self._tolerance, scale):
                raise ValueError(
                    "Per-example gradients of variable "
                    f"`{_name(variable)}` are wrong: the {what} differs from the "
                    "ordinary gradient. A gradient rule is wrong for an op of this "
                    "layer, or the layer reorders the batch axis. Nothing was "
                    "trained. Received: largest difference "
                    f"{np.max(np.abs(computed - expected)):.3g}. What to do: "
                    "replace the layer, or report the model."
                )

    def _compare_norm(self, norm_squared, truth) -> None:
        expected = sum(
            float(np.sum(np.square(value, dtype=np.float64))) for value in truth
        )
        if abs(norm_squared - expected) > 2 * self._tolerance * expected + 1e-12:
            raise ValueError(
                "Per-example gradient norms are wrong for variables "
                f"{[_name(v) for v in self._variables]}: received "
                f"{norm_squared:.6g}, the ordinary gradient has {expected:.6g}. A "
                "gradient rule is wrong. Nothing was trained."
            )

    def _mixing_error(self, data, kept, variable) -> ValueError:
        culprit = self._first_mixing_op(data, kept)
        affected = (
            "the loss" if variable is None else f"the gradient of `{_name(variable)}`"
        )
        return ValueError(
            f"The model mixes the examples of a batch: {affected} of one example "
            f"depends on the other examples. First seen at {culprit}. Such a model "
            "has no bounded sensitivity and cannot be trained privately. Nothing was "
            "trained. What to do: replace BatchNormalization by GroupNormalization "
            "or LayerNormalization, and compute no statistics over the batch axis "
            f"(variables: {', '.join(_name(v) for v in self._variables[:3])}, ...)."
        )

    def _first_mixing_op(self, data, kept) -> str:
        """Names the op at which the first example begins to see the others."""
        tensors = [
            output
            for op in self._ops
            for output in op.outputs
            if output.dtype.is_floating and output.shape.rank
        ]

        @tf.function(autograph=False)
        def evaluate(inputs):
            replaced = dict(zip(map(id, self._sources), inputs, strict=True))
            copies = _copy(self._ops, replaced)
            return [copies[id(tensor)] for tensor in tensors]

        for tensor, old, new in zip(
            tensors, evaluate(data), evaluate(kept), strict=True
        ):
            old, new = old.numpy(), new.numpy()
            share = old.shape[0] // self._rows
            if old.shape != new.shape or share == 0:
                continue
            if not _close(
                old[:share], new[:share], 1e-3, np.max(np.abs(old), initial=0)
            ):
                return f"op `{tensor.op.name}` ({tensor.op.type})"
        return "the loss"


def check_state_updates(losses: tf.Tensor, variables, model, own) -> None:
    """Rejects weights that the forward pass updates from the data.

    Moving statistics (BatchNormalization, a home-made running mean) are released
    with the model, and nobody bounded or noised them.

    Args:
        losses: A tensor of the graph that is being traced.
        variables: The trainable variables.
        model: The model, if known: its metrics and seeds may change freely.
        own: The optimizer's variables.

    Raises:
        ValueError: Naming the weight.
    """
    graph = losses.graph
    ops = graph.get_operations()
    dependent = graph_lib.data_dependent(ops)
    allowed = {id(graph_lib.variable_handle(variable)) for variable in own}
    forbidden = {}
    if model is not None:
        forbidden = {
            id(graph_lib.variable_handle(weight)): _name(weight)
            for weight in model.weights
        }
    for op in ops:
        if not _assigns(op, graph):
            continue
        if not any(id(tensor) in dependent for tensor in op.inputs):
            continue
        for tensor in op.inputs:
            if tensor.dtype != tf.resource:
                continue
            handle = graph_lib.captured_source(tensor)
            if handle is None or id(handle) in allowed:
                continue
            if model is not None and id(handle) not in forbidden:
                continue
            name = forbidden.get(id(handle), tensor.op.name)
            raise ValueError(
                f"The training step updates the weight `{name}` from the data, "
                "without bound or noise, and it would be released with the model. "
                "Replace BatchNormalization by GroupNormalization or "
                "LayerNormalization (or freeze it with `layer.trainable = False`), "
                "and keep no running statistics of the data in a layer."
                + (
                    ""
                    if model is not None
                    else " If it belongs to a metric, call `optimizer.bind(model)` "
                    "or update the metric after `minimize`."
                )
            )


def _assigns(op: tf.Operation, graph) -> bool:
    """Whether an op, or a function that it calls, writes to a variable."""
    if op.type in graph_lib.ASSIGN_OPS:
        return True
    if not op.op_def.is_stateful:
        return False
    return any(
        any(_assigns(inner, function) for inner in function.get_operations())
        for function in graph_lib.called_graphs(op)
    )


def _copy(ops, replaced):
    """Copies ops of a traced graph to the eager level, with its captures."""
    for op in ops:
        if op.type == "Placeholder" and id(op.outputs[0]) not in replaced:
            source = graph_lib.captured_source(op.outputs[0])
            if source is None:
                raise ValueError(f"Cannot evaluate input {op.name} of the model.")
            replaced[id(op.outputs[0])] = source
    return graph_lib.copy_ops(ops, replaced)


def _is_finite(result) -> bool:
    losses, _, _, truth = result
    return all(np.isfinite(value).all() for value in (losses, *truth))


def _numpy(structure):
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), structure)


def _close(computed, expected, tolerance: float, scale: float = 0.0) -> bool:
    computed, expected = np.asarray(computed), np.asarray(expected)
    allowed = tolerance * np.max(np.abs(expected), initial=0) + 1e-2 * tolerance * scale
    return bool(np.all(np.abs(computed - expected) <= allowed + 1e-7))


def _name(variable) -> str:
    return getattr(variable, "path", None) or variable.name
