"""The registry of per-example gradient rules, by TensorFlow op type."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_dp_ext.gradients.contributions import Contribution
from keras_dp_ext.gradients.graph.uses import Use
from keras_dp_ext.gradients.split import Split

# rule(use, d, split) -> contribution, or None where the rule does not apply.
#   use: the op, and which of its inputs is the weight
#   d: gradient of the sum of the losses with respect to the op's first output
#   split: cuts axis 0 of a tensor into microbatches: [rows, positions, ...]
Rule = Callable[[Use, tf.Tensor, Split], Contribution | None]

_RULES: dict[str, Rule] = {}


def register_rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Declares a function to be the rule for some op types.

    A rule that is wrong, or assigns a gradient to the wrong example, is caught
    by the probe before the first update.

    Example: an op of your own, `y = x * w` with one weight for each feature.

    >>> from keras_dp_ext.gradients.contributions import Rows
    >>> @register_rule("MyScale")
    ... def scale(use, d, split):
    ...     data = use.op.inputs[1 - use.index]
    ...     return Rows(tf.reduce_sum(split(d * data), axis=1), use.weight.shape)
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            _RULES[op_type] = rule
        return rule

    return register


def find_rule(op_type: str) -> Rule | None:
    return _RULES.get(op_type)
