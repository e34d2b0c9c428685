"""Turns what users have (arrays, nests of arrays, tf.data) into rows to draw from."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.data.sampling.sources import SourceRows, is_source

logger = logging.getLogger("keras_dp_ext")


def as_rows(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, int]:
    """Checks the data and returns `(x, y, sample_weight, num_examples)`.

    Args:
        x: Array, nest of arrays, a source (`sources.py`), or a `tf.data.Dataset` of
            single examples.
        y: Array, nest of arrays or `None`.
        sample_weight: `[num_examples]` array or `None`.
    """
    if isinstance(x, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "Argument `y` and `sample_weight` must be None when `x` is a "
                "tf.data.Dataset, which yields them itself."
            )
        x, y, sample_weight = _materialise(x)
    if is_source(x):
        # What is small enough for memory is an array; the rest is read by number.
        x, y = SourceRows(x, y), None
    x, y = _as_arrays(x), _as_arrays(y)
    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight, dtype=np.float32)
        if sample_weight.ndim != 1:
            raise ValueError(
                "Argument `sample_weight` must have one weight per example. "
                f"Received: sample_weight.shape={sample_weight.shape}"
            )
    lengths = {_length(leaf) for leaf in tf.nest.flatten((x, y, sample_weight))}
    lengths.discard(None)
    if len(lengths) != 1:
        raise ValueError(
            "Argument `x`, `y` and `sample_weight` must have the same number of "
            f"examples, at least one array. Received: lengths={sorted(lengths)}"
        )
    (num_examples,) = lengths
    if num_examples == 0:
        raise ValueError("Argument `x` must hold at least one example. Received: 0")
    return x, y, sample_weight, num_examples


def with_zero_row(array: Any) -> tf.Tensor:
    """The array as a tensor on the host, with a row of zeros (padding) appended."""
    with tf.device("CPU:0"):
        if isinstance(array, tf.Tensor):
            return tf.concat([array, tf.zeros_like(array[:1])], axis=0)
        padded = np.empty((len(array) + 1, *array.shape[1:]), dtype=array.dtype)
        padded[:-1] = array
        padded[-1] = "" if array.dtype.kind in "OSU" else 0
        return tf.convert_to_tensor(padded)


def _as_arrays(nest: Any) -> Any:
    """Arrays and tensors stay; what converts to an array becomes one."""
    return tf.nest.map_structure(
        lambda leaf: (
            leaf
            if leaf is None or isinstance(leaf, (tf.Tensor, SourceRows))
            else np.asarray(leaf)
        ),
        nest,
    )


def _length(leaf: Any) -> int | None:
    if leaf is None:
        return None
    if isinstance(leaf, SourceRows):
        return len(leaf)
    if not leaf.shape:
        raise ValueError(
            "Argument `x` must hold arrays whose first axis counts the examples. "
            f"Received: a scalar, {leaf!r}"
        )
    return int(leaf.shape[0])


def _materialise(dataset: tf.data.Dataset) -> tuple[Any, Any, Any]:
    """Reads a data set of single examples into memory: lots need random access."""
    cardinality = int(dataset.cardinality())
    if cardinality < 0:
        raise ValueError(
            "Argument `x` must be a tf.data.Dataset of known, finite size, yielding "
            "single examples (not batches): the sampling rate is batch_size / size. "
            "Use `dataset.apply(tf.data.experimental.assert_cardinality(n))` if you "
            f"know it. Received: x.cardinality()={cardinality}"
        )
    if cardinality == 0:
        raise ValueError("Argument `x` must hold at least one example. Received: 0")
    chunks = list(dataset.batch(1024).as_numpy_iterator())
    arrays = tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *chunks)
    size = sum(leaf.nbytes for leaf in tf.nest.flatten(arrays))
    logger.info(
        "Read %d examples of a tf.data.Dataset into memory (%.1f MB).",
        cardinality,
        size / 1e6,
    )
    if not isinstance(arrays, tuple):
        return arrays, None, None
    if len(arrays) > 3:
        raise ValueError(
            "Argument `x` must yield `x`, `(x, y)` or `(x, y, sample_weight)`. "
            f"Received: x.element_spec={dataset.element_spec}"
        )
    return (*arrays, None, None)[:3]
