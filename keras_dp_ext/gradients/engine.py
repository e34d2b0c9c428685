"""The engine: per-example gradients read off the traced graph, in one pass."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients import contributions as forms
from keras_dp_ext.gradients import rules  # noqa: F401  (registers the rules)
from keras_dp_ext.gradients.adjoint import adjoint_of_rows
from keras_dp_ext.gradients.fallback import fallback_rows
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.loops import Unfolded, unfold_loops
from keras_dp_ext.gradients.graph.uses import Use, find_uses
from keras_dp_ext.gradients.lazy_gradients import LazyGradients
from keras_dp_ext.gradients.one_loss_per_example import check_rows_are_examples
from keras_dp_ext.gradients.ordinary import OrdinaryGradients
from keras_dp_ext.gradients.registry import find_rule
from keras_dp_ext.gradients.row_order import RowOrders
from keras_dp_ext.gradients.split import Split


def per_example_gradients(
    losses: tf.Tensor, variables: Sequence, group: int = 1
) -> LazyGradients:
    """Gradients of every microbatch's mean loss, without computing them yet.

    One backward pass gives the gradient of the sum of the losses with respect to
    the output of every op that uses a weight. Together with the op's other input
    this determines the gradient of each example (see `gradients/rules`).

    Args:
        losses: `[batch]` symbolic tensor, in a graph that is being traced.
        variables: Trainable Keras or TensorFlow variables.
        group: Examples per microbatch; consecutive examples form one.
    """
    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), losses.shape[0])
    check_rows_are_examples(losses, sources)
    unfolded = unfold_loops(losses, variables, group)
    losses = unfolded.losses
    rows = [*sources, *unfolded.constants]
    split = Split(losses, group, RowOrders(losses, rows, group), rows)
    ordinary = OrdinaryGradients(losses, variables, sources, group)
    uses = _differentiated_uses(losses, variables, unfolded, ordinary, split)
    return LazyGradients(
        _contributions(uses, losses, variables, split, group),
        [tf.TensorShape(variable.shape) for variable in variables],
        split.rows,
        ordinary,
    )


# A use of a weight, and the gradient of the losses with respect to its output: `None`
# where they do not depend on it.
DifferentiatedUse = tuple[Use, tf.Tensor | None]


def _differentiated_uses(
    losses: tf.Tensor,
    variables: Sequence,
    unfolded: Unfolded,
    ordinary: OrdinaryGradients,
    split: Split,
) -> list[DifferentiatedUse]:
    """The one backward pass, which also gives the ordinary gradients for the probe."""
    uses, _ = find_uses(losses, variables, unfolded.constants)
    uses = [use for use in uses if use.op not in unfolded.loops]
    outputs = {id(use.op): use.op.outputs[0] for use in uses}
    perturbations = [tap.perturbation for tap in unfolded.taps]
    gradients = tf.gradients(
        losses,
        [*outputs.values(), *perturbations, *_inputs_of_calls(uses), *ordinary.xs],
        grad_ys=ordinary.weights,
    )
    ordinary.take(gradients[len(gradients) - len(ordinary.xs) :])
    gradient_of = dict(zip(outputs, gradients, strict=False))
    of_taps = gradients[len(outputs) : len(outputs) + len(perturbations)]
    return [(use, gradient_of[id(use.op)]) for use in uses] + [
        tap.as_use(d, split)
        for tap, d in zip(unfolded.taps, of_taps, strict=True)
        if d is not None
    ]


def _contributions(
    uses: Sequence[DifferentiatedUse],
    losses: tf.Tensor,
    variables: Sequence,
    split: Split,
    group: int,
) -> list[forms.Contribution | None]:
    """For each variable its per-example gradients: by rules, or by the fallback.

    `None` for a variable that the losses do not depend on.
    """
    parts: dict[int, list[forms.Contribution]] = defaultdict(list)
    without_rule: dict[int, Use] = {}
    for use, d in uses:
        rule = find_rule(use.op.type)
        if d is None and use.outputs == 1:
            continue  # The losses do not depend on this op.
        contribution = None
        if rule is not None and d is not None:
            contribution = rule(use, tf.convert_to_tensor(d), split)
        for number in use.variables:
            if contribution is None:
                without_rule.setdefault(number, use)
            else:
                parts[number].append(
                    _with_respect_to(variables[number], contribution, use)
                )
    if without_rule:
        numbers = sorted(without_rule)
        rows = fallback_rows(
            losses,
            [variables[number] for number in numbers],
            group,
            [without_rule[number] for number in numbers],
        )
        for number, value in zip(numbers, rows, strict=True):
            parts[number] = [forms.Rows(value, variables[number].shape)]
    return [
        forms.total(parts[number]) if parts[number] else None
        for number in range(len(variables))
    ]


def _with_respect_to(variable: Any, contribution: Any, use: Use) -> forms.Contribution:
    """From the gradient of a weight to that of the variable behind it."""
    if use.view is not None:
        view = use.view
        if not view.steps:
            return contribution
        return forms.Mapped(
            contribution,
            view.shape,
            rows_map=functools.partial(view.from_view, rows=True),
            sum_map=view.from_view,
            scale_map=view.to_view,
        )
    weight = use.weight
    handle = graph_lib.handle_in_graph(variable, weight.graph)

    def adjoint(value: Any) -> Any:
        gradient = tf.gradients(weight, handle, grad_ys=tf.cast(value, weight.dtype))[0]
        return tf.cast(tf.convert_to_tensor(gradient), tf.float32)

    return forms.Mapped(
        contribution,
        variable.shape,
        rows_map=adjoint_of_rows(weight, handle)
        or (lambda rows: tf.vectorized_map(adjoint, rows)),
        sum_map=adjoint,
    )


def _inputs_of_calls(uses: Sequence[Use]) -> list[tf.Tensor]:
    """What gradients must be asked for beside those of a function's output.

    Where gradients end at a call, `tf.gradients` still adds an unused node for the rest
    of the way, which XLA cannot compile.
    """
    return [
        tensor
        for use in uses
        if use.op.type in ("PartitionedCall", "StatefulPartitionedCall")
        for tensor in use.op.inputs
        if tensor.dtype.is_floating
    ]
