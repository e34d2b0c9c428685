"""A copy of a model in which no layer computes statistics over the batch."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_dp_ext._checks import check_count, check_one_of
from keras_dp_ext._compat import keras_internals
from keras_dp_ext.models.incompatible_layers import (
    find_incompatible,
    is_batch_normalization,
)

_MODES = ("replace", "freeze")

# With fewer channels in a group, and 1 x 1 pixels, the mean is all there is: what is
# left after its subtraction is zero.
_LEAST_CHANNELS = 4

# Arguments that both normalisations have.
_COMMON = (
    "name",
    "trainable",
    "dtype",
    "axis",
    "epsilon",
    "center",
    "scale",
    "beta_initializer",
    "gamma_initializer",
    "beta_regularizer",
    "gamma_regularizer",
    "beta_constraint",
    "gamma_constraint",
)


def make_compatible(
    model: keras.Model,
    batch_normalization: str = "replace",
    groups: int = 32,
    verbose: bool = True,
) -> keras.Model:
    """Replaces layers that mix the examples of a batch, which privacy does not allow.

    BatchNormalization becomes GroupNormalization of the same name, scale and offset,
    everywhere in the model. All other layers keep their weights. What else stands in
    the way is named in a warning, with what to do.

    A BatchNormalization that is frozen already (`trainable = False`, as in the base
    of a model that is fine-tuned) works with fixed statistics and stays as it is.

    Args:
        model: A built functional or `Sequential` model, with others in it or not.
        batch_normalization: "replace", or "freeze", which keeps the layers with the
            statistics that they have. Those must come from public data, such as
            pretrained weights: private training does not cover them.
        groups: The most groups of channels. Every group gets at least four channels,
            and all get as many.
        verbose: Whether to print what was changed.

    Returns:
        A new model, not compiled; `model` itself if there is nothing to change.

    Raises:
        ValueError: If the model is subclassed, so that its layers are called by code
            that cannot be rewritten; or not built.

    Example:

    >>> import keras
    >>> model = keras.Sequential([
    ...     keras.Input([8, 8, 3]), keras.layers.Conv2D(16, 3),
    ...     keras.layers.BatchNormalization(name="bn"), keras.layers.Flatten(),
    ... ])
    >>> private = make_compatible(model)
    1 BatchNormalization replaced by GroupNormalization: bn (4 groups)
    >>> type(private.get_layer("bn")).__name__
    'GroupNormalization'
    """
    check_one_of("batch_normalization", batch_normalization, _MODES)
    check_count("groups", groups)
    found = find_incompatible(model)
    normalizations = [f.layer for f in found if is_batch_normalization(f.layer)]
    others = [str(f) for f in found if not is_batch_normalization(f.layer)]
    if others:
        warnings.warn(
            "Layers that `make_compatible` cannot change: " + "; ".join(others) + ".",
            stacklevel=2,
        )
    if not normalizations:
        if verbose:
            print("Nothing to change.")
        return model
    _check_can_be_cloned(model, normalizations)
    cloner = _Cloner(batch_normalization, int(groups))
    changed = cloner.clone(model)
    missed = [layer for layer in normalizations if id(layer) not in cloner.changes]
    if missed:
        raise ValueError(
            "BatchNormalization inside of other layers cannot be replaced from here: "
            f"{_names(missed)}. Build those layers with GroupNormalization, or set "
            "`layer.trainable = False` on it if its statistics are public."
        )
    cloner.copy_weights()
    if verbose:
        done = "frozen" if batch_normalization == "freeze" else "replaced by "
        done += "" if batch_normalization == "freeze" else "GroupNormalization"
        print(
            f"{len(cloner.changes)} BatchNormalization {done}: "
            + ", ".join(cloner.changes.values())
        )
    return changed


class _Cloner:
    """Clones a model, each layer once, however often and deep it is used."""

    def __init__(self, mode: str, groups: int):
        self._mode = mode
        self._groups = groups
        self._pairs: dict[int, tuple[keras.layers.Layer, keras.layers.Layer]] = {}
        #: What was done to each layer that was changed, by its id.
        self.changes: dict[int, str] = {}

    def clone(self, model: keras.Model) -> keras.Model:
        options = {}
        if not isinstance(model, keras.Sequential):
            options["call_function"] = _call
        cloned = keras.models.clone_model(
            model, clone_function=self._clone_layer, **options
        )
        # Keras compiles the copy like the original: with an optimizer that has
        # trained nothing, and a ledger that knows of nothing.
        cloned.compiled = False
        cloned.optimizer = None
        return cloned

    def _clone_layer(self, layer: keras.layers.Layer) -> Any:
        if not isinstance(layer, keras.layers.Layer):
            return layer  # An operation; it has no weights.
        if id(layer) not in self._pairs:
            self._pairs[id(layer)] = layer, self._clone_once(layer)
        return self._pairs[id(layer)][1]

    def _clone_once(self, layer: keras.layers.Layer) -> Any:
        if _is_graph_of_layers(layer):
            return self.clone(layer)
        if not is_batch_normalization(layer):
            return type(layer).from_config(layer.get_config())
        config = layer.get_config()
        if self._mode == "freeze":
            self.changes[id(layer)] = layer.name
            return type(layer).from_config({**config, "trainable": False})
        channels = int(layer.moving_mean.shape[0])
        groups = _number_of_groups(channels, self._groups)
        self.changes[id(layer)] = f"{layer.name} ({groups} groups)"
        return keras.layers.GroupNormalization(
            groups=groups, **{name: config[name] for name in _COMMON if name in config}
        )

    def copy_weights(self) -> None:
        for layer, clone in self._pairs.values():
            if _is_graph_of_layers(layer):
                continue
            if isinstance(clone, keras.layers.GroupNormalization) and not isinstance(
                layer, keras.layers.GroupNormalization
            ):
                for name in ("gamma", "beta"):
                    if getattr(clone, name, None) is not None:
                        getattr(clone, name).assign(getattr(layer, name))
            elif layer.weights:
                clone.set_weights(layer.get_weights())


def _call(layer: keras.layers.Layer, *arguments: Any, **keywords: Any) -> Any:
    """GroupNormalization needs no `training`, and takes its mask from the tensor."""
    if isinstance(layer, keras.layers.GroupNormalization):
        keywords = {}
    return layer(*arguments, **keywords)


def _number_of_groups(channels: int, most: int) -> int:
    """The most groups of equal size with at least `_LEAST_CHANNELS` channels each."""
    return max(
        number
        for number in range(1, min(most, channels) + 1)
        if channels % number == 0
        and (channels // number >= _LEAST_CHANNELS or number == 1)
    )


def _is_graph_of_layers(layer: keras.layers.Layer) -> bool:
    """Whether Keras knows how the layers of a model are connected."""
    return isinstance(layer, (keras.Sequential, keras_internals.functional_class()))


def _check_can_be_cloned(
    model: keras.Model, normalizations: Sequence[keras.layers.Layer]
) -> None:
    names = _names(normalizations)
    if not _is_graph_of_layers(model):
        raise ValueError(
            "Argument `model` must be a functional or Sequential model: the layers of "
            f"{type(model).__name__} are called by its own code. Write "
            "`keras.layers.GroupNormalization` in place of BatchNormalization there: "
            f"{names}. Received: model={model.name}"
        )
    if "call_function" not in inspect.signature(keras.models.clone_model).parameters:
        raise NotImplementedError(
            "`make_compatible` needs a version of Keras whose `clone_model` has "
            f"`call_function`: `pip install -U keras`. Received: {keras.__version__}"
        )
    if not all(layer.built for layer in normalizations):
        raise ValueError(
            "Argument `model` must be built, so that the number of channels is known: "
            f"begin it with `keras.Input`. Received: {names}, not built"
        )


def _names(layers: Sequence[keras.layers.Layer]) -> str:
    shown = ", ".join(f"`{layer.name}`" for layer in layers[:5])
    return shown + (f" and {len(layers) - 5} more" if len(layers) > 5 else "")
