"""From the scalar loss that Keras hands over back to one loss per example."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib

_HINT = (
    "Private training needs one loss for each example. Use a loss of "
    "`keras.losses` with any reduction, a loss function that returns one value "
    "per example, or `reduction=None`; in a custom loop pass the vector of "
    "losses to `optimizer.minimize(losses, variables)` in a tf.function."
)

_ADDED_LOSSES = (
    "A loss that a layer adds by itself (`add_loss`) needs one value for each example, "
    "too. That of a mixture of experts, which balances the load over the batch, is "
    "switched off by a coefficient of 0 (KerasHub: `router_aux_loss_coef=0`, or "
    "`router_aux_loss_coefficient=0`)."
)

# Short vectors of integers are shapes, axes and permutations.
_MOST_AXES = 8


@dataclasses.dataclass
class SeparatedLoss:
    """A scalar loss taken apart.

    Attributes:
        per_example: `[batch]` float32 losses.
        data_independent: Scalars (regularisation penalties) that depend on the
            weights only. Their gradient is added after the noise, for free.
        is_mean: Whether the scalar is a mean over the batch, not a sum.
    """

    per_example: tf.Tensor
    data_independent: list[tf.Tensor]
    is_mean: bool


def separate(loss: tf.Tensor) -> SeparatedLoss:
    """Walks back from a loss to its per-example part.

    A loss is a sum of terms. A term that does not depend on the data is set
    aside. Every other one must be a reduction over a tensor whose first axis is
    the batch, times public constants (loss weights). Whatever the reduction
    divides by (batch size, sum of the sample weights, number of replicas) is
    dropped: the private update divides by the public expected batch size.

    Raises:
        ValueError: If some term hides the examples, e.g. behind a square root; if
            a divisor is itself to be trained; or if a term without data closes
            over arrays, which may be data all the same.
    """
    ops = graph_lib.ancestors([loss])
    dependent = graph_lib.data_dependent(ops, has_draws=False)
    if id(loss) not in dependent:
        raise ValueError(
            f"The loss does not depend on any data. Received: loss={loss}. {_HINT}"
        )
    if loss.shape.rank is None or loss.shape.rank > 0:
        return SeparatedLoss(_rows(loss, is_mean=True), [], is_mean=False)
    walk = _Walk(dependent)
    walk.add(loss, 1.0)
    if len({term.shape[0] for term in walk.rows if term.shape[0] is not None}) > 1:
        raise ValueError(
            "The terms of the loss have different numbers of examples. "
            f"Received: {[term.shape for term in walk.rows]}. {_HINT} {_ADDED_LOSSES}"
        )
    return SeparatedLoss(tf.add_n(walk.rows), walk.data_independent, walk.is_mean)


class _Walk:
    """Collects the terms of a sum, each with its constant factor."""

    def __init__(self, dependent: set[int]):
        self._dependent = dependent
        self._replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self.rows: list[tf.Tensor] = []
        self.data_independent: list[tf.Tensor] = []
        self.is_mean = True

    def add(
        self,
        tensor: tf.Tensor,
        factor: float,
        divisors: tuple[tf.Tensor, ...] = (),
    ) -> None:
        """Adds `factor * tensor / divisors`."""
        if id(tensor) not in self._dependent:
            self._add_penalty(tensor, factor, divisors)
            return
        op, kind = tensor.op, tensor.op.type
        if tensor.shape.rank != 0:
            self._add_rows(tensor, factor, divisors)
        elif kind in ("Identity", "Cast", "Snapshot"):
            self.add(op.inputs[0], factor, divisors)
        elif kind == "Neg":
            self.add(op.inputs[0], -factor, divisors)
        elif kind in ("AddV2", "Add", "AddN"):
            for term in op.inputs:
                self.add(term, factor, divisors)
        elif kind == "Sub":
            self.add(op.inputs[0], factor, divisors)
            self.add(op.inputs[1], -factor, divisors)
        elif kind in ("Mul", "MulNoNan"):
            self._add_product(tensor, factor, divisors)
        elif kind in ("RealDiv", "DivNoNan"):
            numerator, divisor = op.inputs
            if id(numerator) not in self._dependent:
                raise _hidden_losses_error(tensor)
            self.add(numerator, factor, (*divisors, divisor))
        elif kind in ("Reshape", "Squeeze"):
            self._add_rows(op.inputs[0], factor, divisors)
        elif kind in ("Sum", "Mean"):
            self._add_reduction(tensor, factor, divisors)
        else:
            raise _hidden_losses_error(tensor)

    def _add_penalty(
        self, tensor: tf.Tensor, factor: float, divisors: tuple[tf.Tensor, ...]
    ) -> None:
        _check_closes_over_nothing(tensor)
        # Keras gives each replica its share of a penalty; we add it once.
        term = factor * self._replicas * tf.cast(tensor, tf.float32)
        for divisor in divisors:
            if id(divisor) in self._dependent:
                raise ValueError(
                    "A penalty on the weights is divided by a number that depends "
                    "on the data, and its gradient would reveal that number. "
                    f"Received: divisor={divisor}. Add the penalty with "
                    "`add_loss`, or divide the losses of the examples only."
                )
            term = tf.math.divide_no_nan(term, tf.cast(divisor, tf.float32))
        self.data_independent.append(term)

    def _add_product(
        self, tensor: tf.Tensor, factor: float, divisors: tuple[tf.Tensor, ...]
    ) -> None:
        varying, constant = tensor.op.inputs
        if id(varying) not in self._dependent:
            varying, constant = constant, varying
        value = tf.get_static_value(constant)
        if id(constant) in self._dependent or value is None or np.size(value) != 1:
            raise _hidden_losses_error(tensor)
        value = float(np.reshape(value, ()))
        if value == 0.0:
            return  # A term that is switched off.
        if self._is_replica_share(varying, value):
            value = 1.0
        self.add(varying, factor * value, divisors)

    def _is_replica_share(self, scaled: tf.Tensor, value: float) -> bool:
        """Whether this is the factor of Keras' `scale_loss_for_distribution`."""
        return (
            self._replicas > 1
            and scaled.op.type in ("DivNoNan", "RealDiv", "Mean")
            and abs(value * self._replicas - 1.0) < 1e-6
        )

    def _add_reduction(
        self, tensor: tf.Tensor, factor: float, divisors: tuple[tf.Tensor, ...]
    ) -> None:
        values = tensor.op.inputs[0]
        is_mean = tensor.op.type == "Mean"
        if values.shape.rank == 0:
            self.add(values, factor, divisors)
        elif values.op.type == "Pack" and values.shape.rank == 1:
            terms = list(values.op.inputs)
            for term in terms:
                self.add(term, factor / len(terms) if is_mean else factor, divisors)
        else:
            self._add_rows(values, factor, divisors, is_mean)

    def _add_rows(
        self,
        values: tf.Tensor,
        factor: float,
        divisors: tuple[tf.Tensor, ...],
        is_mean: bool = False,
    ) -> None:
        values = _unflattened(values)
        divided = is_mean
        for divisor in divisors:
            # A divisor that ties the examples together is dropped: the private
            # update divides by the public batch size instead.
            _check_is_not_trained(divisor)
            if id(divisor) in self._dependent:
                _check_counts_examples(divisor, values)
            meaning = _meaning_of_divisor(divisor, values)
            is_mean = is_mean or meaning == "all elements"
            if meaning == "constant":
                factor /= float(tf.get_static_value(divisor))
            divided = divided or meaning != "constant"
        self.is_mean = self.is_mean and divided
        rows = _rows(values, is_mean)
        self.rows.append(rows if factor == 1.0 else factor * rows)


def _meaning_of_divisor(divisor: tf.Tensor, values: tf.Tensor) -> str:
    """`"all elements"`, `"examples"` or `"constant"`."""
    static = tf.get_static_value(divisor)
    if static is None:
        counts = {op.type for op in graph_lib.ancestors([divisor])}
        return "all elements" if counts & {"Prod", "Size", "Sum"} else "examples"
    if values.shape.num_elements() == float(static):
        return "all elements"
    return "examples" if values.shape[0] == float(static) else "constant"


def _check_is_not_trained(divisor: tf.Tensor) -> None:
    """Without a divisor that depends on the weights, the objective is another."""
    pending, seen = [divisor], set()
    while pending:
        op = pending.pop().op
        if op in seen or op.type in graph_lib.SHAPE_OPS:
            continue
        seen.add(op)
        if any(tensor.dtype == tf.resource for tensor in op.inputs):
            raise ValueError(
                "The loss is divided by a number that depends on the weights "
                f"(op {divisor.op.type}, {divisor.op.name}), as in Dice and Tversky "
                "losses of a whole batch: it ties the examples together, and "
                f"without it another loss would be trained. {_HINT} Keras' Dice and "
                "Tversky are those of each example with the axes of an example: "
                "`keras.losses.Dice(axis=(1, 2, 3))` for images."
            )
        # A comparison (a mask) has no gradient: it counts, it is not trained.
        pending.extend(tensor for tensor in op.inputs if tensor.dtype.is_floating)


def _check_counts_examples(divisor: tf.Tensor, values: tf.Tensor) -> None:
    """Time steps that a mask counts in the whole batch tie the examples together."""
    if values.shape.rank == 1 or values.shape[1:].num_elements() == 1:
        return
    raise ValueError(
        "The loss is divided by a number that is counted in the whole batch, such as "
        f"its unmasked time steps (op {divisor.op.type}, {divisor.op.name}), and "
        "each example has several values. An example must not decide how much "
        "others count. What to do: let each example count for itself, with a loss "
        "that returns one value for each, e.g. `ops.sum(losses * mask, axis=-1) / "
        'ops.maximum(ops.sum(mask, axis=-1), 1)`, or use `reduction="sum"`. '
        f"Received: values of shape {tuple(values.shape)}"
    )


def _check_closes_over_nothing(penalty: tf.Tensor) -> None:
    """Arrays in a term of the loss may be data: its gradient is not noised."""
    pending = list(graph_lib.ancestors([penalty]))
    while pending:
        op = pending.pop()
        for graph in graph_lib.called_graphs(op):
            pending.extend(graph.get_operations())
        if op.type in ("Const", "Placeholder") and _may_be_data(op.outputs[0]):
            raise ValueError(
                "A term of the loss does not depend on the batch but on an array "
                f"that the model closes over, of shape {op.outputs[0].shape} "
                f"({op.name}). Its gradient would be released without noise, and "
                "the array may be private. If it is public (e.g. weights to stay "
                "close to), keep it in a non-trainable weight of the model."
            )


def _may_be_data(tensor: tf.Tensor) -> bool:
    if tensor.dtype in (tf.resource, tf.string, tf.variant) or tensor.shape.rank == 0:
        return False
    if tensor.op.type == "Placeholder":
        return graph_lib.captured_source(tensor) is not None
    value = np.ravel(tf.get_static_value(tensor))
    if tensor.dtype.is_integer and value.size <= _MOST_AXES:
        return False
    return bool(np.any(value != value[:1]))


def _unflattened(values: tf.Tensor) -> tf.Tensor:
    """Looks through the flattening that precedes some reductions."""
    while values.op.type == "Reshape" and values.shape.rank == 1:
        inner = values.op.inputs[0]
        if inner.shape.rank is None or inner.shape.rank <= 1:
            break
        values = inner
    return values


def _rows(values: tf.Tensor, is_mean: bool) -> tf.Tensor:
    """`[batch]` losses from `[batch, ...]` values: mean or sum of the rest."""
    values = tf.cast(values, tf.float32)
    if values.shape.rank == 0:
        raise _hidden_losses_error(values)
    if values.shape.rank == 1:
        return values
    reduce = tf.reduce_mean if is_mean else tf.reduce_sum
    return reduce(values, axis=list(range(1, values.shape.rank)))


def _hidden_losses_error(tensor: tf.Tensor) -> ValueError:
    return ValueError(
        "The loss hides its examples: it is not a sum or mean of one value per "
        f"example. Received: op {tensor.op.type} ({tensor.op.name}) of shape "
        f"{tensor.shape}. {_HINT} {_ADDED_LOSSES}"
    )
