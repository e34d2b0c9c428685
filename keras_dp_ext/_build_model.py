"""Builds a model from the shapes of the data that `fit` was called with.

Keras builds a model that does not know its inputs yet (a `Sequential` without `Input`,
a subclass) while it traces the first step. What a release costs depends on the weights,
and a budget is checked before the first one: so the weights have to be there earlier.
"""

from __future__ import annotations

from typing import Any

import keras

from keras_dp_ext._compat import keras_internals
from keras_dp_ext._fit_context import FitContext


def build_model(context: FitContext) -> None:
    """Creates the weights that are missing, from shapes alone: no data is read.

    Raises:
        ValueError: If there are no weights afterwards, because the model cannot be
            called on the inputs as they come from the data.
    """
    model = context.model
    if all(layer.built for layer in keras_internals.all_layers(model)):
        return
    inputs = _symbolic_inputs(context.input_spec)
    failure = None
    if inputs is not None:
        try:
            with model.distribute_strategy.scope():
                model(inputs)
        except Exception as error:
            # A model with a `train_step` of its own need not be callable like this;
            # its parts may all be built.
            failure = error
    if not model.trainable_variables:
        raise ValueError(
            f"{type(model).__name__} has no weights yet, and they could not be created "
            "from the shapes of the data. Call the model once on a batch before `fit`: "
            "`model(x[:1])`."
        ) from failure


def _symbolic_inputs(spec: Any) -> Any:
    """Keras' symbolic tensors for the specification of `x`; `None` if it has none."""
    leaves = keras.tree.flatten(spec)
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        return None
    if any(leaf.shape.rank is None for leaf in leaves):
        return None
    return keras.tree.map_structure(
        lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype.name), spec
    )
