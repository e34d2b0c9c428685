"""Layers that have looked at the data: what they released, and which keep no account.

A layer that knows its cost offers a method `privacy_releases()`, which returns a list of
`keras_dp_ext.accounting.OneOff`: claim, sampling, count and an id that is saved with the
layer. A training of a model with it finds it, and the same id counts once in a ledger.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import keras_internals, tf_datasets
from keras_dp_ext.accounting.ledger import Ledger

# KerasHub's tokenizers have a vocabulary too, but do not learn it.
_WITH_VOCABULARY = (
    keras.layers.IntegerLookup,
    keras.layers.StringLookup,
    keras.layers.TextVectorization,
)


def record_layers(ledger: Ledger, layers: Iterable[keras.layers.Layer]) -> None:
    """Puts into the ledger what layers have released, or that they do not know."""
    for layer in layers:
        if hasattr(layer, "privacy_releases"):
            for release in layer.privacy_releases():
                ledger.add(release)
        else:
            what = uncovered_by(layer)
            if what:
                ledger.add_uncovered(what)


def layers_of_model(model: Any) -> list[keras.layers.Layer]:
    """All layers of a model, and of models and layers in it."""
    if not isinstance(model, keras.layers.Layer):
        return []
    layers = list(keras_internals.all_layers(model))
    # The table in a TextVectorization is no layer of the user's.
    inner = {id(keras_internals.table_of(layer)) for layer in layers}
    return [layer for layer in layers if id(layer) not in inner]


def layers_of_pipeline(dataset: Any) -> list[keras.layers.Layer]:
    """Layers that functions of `map` use, as far as Python shows them."""
    found: dict[int, keras.layers.Layer] = {}
    pending = [dataset]
    while pending:
        source = pending.pop()
        if not isinstance(source, tf.data.Dataset):
            continue
        pending.extend(tf_datasets.dataset_inputs(source))
        for function in tf_datasets.dataset_python_functions(source):
            for layer in _layers_used_by(function):
                for inner in layers_of_model(layer):
                    found[id(inner)] = inner
    return list(found.values())


def uncovered_by(layer: keras.layers.Layer) -> str | None:
    """What an adapted layer without a claim means for the guarantee, or `None`."""
    how = _how_adapted(layer)
    return how and f"layer `{layer.name}` {how}"


def _how_adapted(layer: keras.layers.Layer) -> str | None:
    adapted = "was adapted on data"
    if isinstance(layer, keras.layers.Normalization):
        if layer.input_mean is not None or not layer.built:
            return None
        mean, variance = np.asarray(layer.adapt_mean), np.asarray(layer.adapt_variance)
        return adapted if np.any(mean != 0) or np.any(variance != 1) else None
    if isinstance(layer, keras.layers.Discretization):
        own = layer.num_bins is not None and layer.bin_boundaries
        return adapted if own else None
    if isinstance(layer, _WITH_VOCABULARY):
        if not keras_internals.has_learned_words(layer):
            return None
        return (
            f"{adapted}, or got its vocabulary later than in its constructor "
            "(pass `vocabulary=` there if it is public)"
        )
    if not callable(getattr(layer, "adapt", None)):
        return None
    known = keras_internals.is_adapted(layer)
    if known is None:
        return "has a method `adapt`, and may hold statistics of the data"
    return adapted if known else None


def _layers_used_by(function: Any, depth: int = 3) -> Iterator[keras.layers.Layer]:
    """The layers that a function is, holds, or names."""
    if isinstance(function, keras.layers.Layer):
        yield function
        return
    if function is None or depth == 0:
        return
    if isinstance(function, functools.partial):
        values = [function.func, *function.args, *function.keywords.values()]
    else:
        values = [getattr(function, "__self__", None)]
        values += [getattr(function, "__wrapped__", None)]
        code = getattr(function, "__code__", None)
        names = getattr(function, "__globals__", {})
        if code is not None:
            values += [names.get(name) for name in code.co_names]
        for cell in getattr(function, "__closure__", None) or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # The name is not bound yet.
                continue
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, keras.layers.Layer) or callable(item):
                yield from _layers_used_by(item, depth - 1)
