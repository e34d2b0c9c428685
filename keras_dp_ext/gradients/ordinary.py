"""Ordinary gradients, beside per-example ones from the same backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib

# Their gradients change the op itself, which belongs to the training step.
_CHANGED_BY_GRADIENTS = graph_lib.LOOP_OPS | graph_lib.CALL_OPS


class OrdinaryGradients:
    """Gradients of the weighted sum of the losses, as TensorFlow computes them.

    What the probe compares with. They cost next to nothing: TensorFlow's gradient of
    an op computes that of its weight, too. Both sides have one forward pass in common,
    so that no kink of a ReLU can fall on different sides.

    Args:
        losses: `[batch]`.
        variables: The trainable variables.
        sources: Through which data enters.
        group: Examples per microbatch.

    Attributes:
        weights: `[batch]`, 1 / `group`. Replace them for the gradient of the sum of the
            losses with other weights.
        xs: What gradients to ask for.
        of_variables: For each variable, dense, or `None` without influence.
        of_sources: For each float source with influence.
        is_known: Whether there are gradients. Not so where control flow is in the way.
    """

    def __init__(
        self,
        losses: tf.Tensor,
        variables: Sequence,
        sources: Sequence[tf.Tensor],
        group: int,
    ):
        self.weights = tf.fill(tf.shape(losses), tf.cast(1.0 / group, losses.dtype))
        self.weights.set_shape(losses.shape)
        self.of_variables: list[tf.Tensor | None] = [None] * len(variables)
        self.of_sources: list[tf.Tensor] = []
        types = {op.type for op in graph_lib.ancestors([losses])}
        self.is_known = not types & _CHANGED_BY_GRADIENTS
        self.xs: list[tf.Tensor] = []
        if not self.is_known:
            return
        handles = graph_lib.handles_in_graph(variables, losses.graph)
        self._places = [n for n, handle in enumerate(handles) if handle is not None]
        self.xs = [handles[number] for number in self._places]
        self.xs += [source for source in sources if source.dtype.is_floating]

    def take(self, gradients: Sequence) -> None:
        """Keeps the gradients with respect to `xs`."""
        if not self.is_known:
            return
        dense = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        for number, gradient in zip(self._places, dense, strict=False):
            self.of_variables[number] = gradient
        of_sources = dense[len(self._places) :]
        self.of_sources = [g for g in of_sources if g is not None]
