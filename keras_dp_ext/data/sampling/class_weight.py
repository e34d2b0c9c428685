"""Class weights as sample weights: Keras allows one of the two for a data set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat.keras_internals import CLASS_WEIGHT_FUNCTION


def with_class_weight(
    sample_weight: Any, class_weight: Mapping[int, float] | None, y: Any
) -> Any:
    """The sample weights, multiplied by the weight of each example's class.

    Args:
        sample_weight: `[N]` array or `None`.
        class_weight: From class to weight, 1 where a class is missing; or `None`.
        y: `[N]` or `[N, 1]` integer labels.
    """
    if class_weight is None:
        return sample_weight
    labels = np.asarray(y) if not tf.nest.is_nested(y) and y is not None else None
    if labels is not None and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    whole = labels is not None and labels.ndim == 1 and labels.dtype.kind in "buif"
    if not whole or (labels.dtype.kind == "f" and np.any(labels != np.round(labels))):
        raise ValueError(
            "Argument `class_weight` needs one integer label for each example in `y`. "
            "Pass `sample_weight` instead. Received: y of "
            + ("several arrays" if labels is None else f"shape {labels.shape}")
        )
    weights = np.ones([len(labels)], np.float32)
    for label, weight in class_weight.items():
        weights[labels == label] = weight
    return weights if sample_weight is None else weights * np.asarray(sample_weight)


def explain_class_weight(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes `fit(dataset, class_weight=...)` say where the argument belongs.

    Keras applies its class weights by `dataset.map`, and fails there with "You cannot
    `class_weight` and `sample_weight` at the same time": it does not know that the
    sample weights are the padding's.
    """
    transform = dataset.map

    @functools.wraps(transform)
    def map_or_explain(
        map_func: Callable[..., Any], *arguments: Any, **keywords: Any
    ) -> Any:
        if getattr(map_func, "__name__", "") == CLASS_WEIGHT_FUNCTION:
            raise ValueError(
                "`class_weight` belongs to the data here: pass it to "
                "`poisson_batches(x, y, class_weight=...)` in place of `fit`. The lots "
                "have sample weights already, which mark their padding."
            )
        return transform(map_func, *arguments, **keywords)

    dataset.map = map_or_explain
    return dataset
