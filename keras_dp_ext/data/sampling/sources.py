"""Data that stays where it is: rows are read by their number when a lot needs them."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.data.sampling.mapped_rows import MappedRows

# Rows of one batch that are read at a time; reading waits for a disk, mostly.
_THREADS = 8


def is_source(value: Any) -> bool:
    """Whether a value gives examples by number, and is not an array in memory.

    `np.memmap`, `tfds.data_source`, Hugging Face data sets, HDF5, or any object with
    `__len__` and `__getitem__`. What converts to an array (pandas) is one.
    """
    if isinstance(value, (str, bytes, list, tuple, dict, tf.Tensor, tf.data.Dataset)):
        return False
    if isinstance(value, np.ndarray):
        return isinstance(value, np.memmap)
    indexable = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    on_disk = type(value).__module__.partition(".")[0] in ("h5py", "zarr")
    return indexable and (on_disk or not hasattr(value, "__array__"))


class SourceRows:
    """Examples of a source, as lots of tensors.

    Args:
        x: A source of inputs or of `(input, target)` pairs, or of dictionaries.
        y: Targets as an array or another source; or the name of the entry in each
            dictionary that is the target; or `None`.
    """

    def __init__(self, x: Any, y: Any = None):
        if isinstance(x, keras.utils.PyDataset):
            raise ValueError(
                "Argument `x` must give one example for each number, and a PyDataset "
                "gives batches, which are not what is sampled. Pass an object whose "
                "`__getitem__` returns a single `(x, y)` and `__len__` the number of "
                f"examples. Received: x={type(x).__name__}"
            )
        self._x, self._y = (
            MappedRows(part) if MappedRows.can_read(part) else part for part in (x, y)
        )
        self._length = len(x)
        if y is not None and not isinstance(y, str) and len(y) != self._length:
            raise ValueError(
                "Argument `x` and `y` must have the same number of examples. Received: "
                f"lengths={sorted({self._length, len(y)})}"
            )
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        if self._length:
            self._first = self._pair(self._x[0], 0)
            self._zeros = [_zero(leaf) for leaf in tf.nest.flatten(self._first)]

    def __len__(self) -> int:
        return self._length

    def gather(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """`(x, y)` of these rows; zeros where an index is the number of examples."""
        types = [_type(zero) for zero in self._zeros]
        read = tf.numpy_function(self.read, [indices], types, stateful=False)
        for tensor, zero in zip(read, self._zeros, strict=True):
            tensor.set_shape([indices.shape[0], *zero.shape])
        return tf.nest.pack_sequence_as(self._first, read)

    def read(self, indices: np.ndarray) -> list[np.ndarray]:
        """The leaves of these rows, as arrays; see `gather`."""
        slots = np.flatnonzero(indices < self._length)
        columns = [
            np.full([len(indices), *zero.shape], zero, zero.dtype)
            for zero in self._zeros
        ]
        for slot, example in zip(slots, self._examples(indices[slots]), strict=True):
            leaves = tf.nest.flatten(example)
            for column, leaf in zip(columns, leaves, strict=True):
                value = _as_array(leaf)
                if value.shape != column.shape[1:]:
                    raise ValueError(
                        "All examples must have one shape: pad or crop them in "
                        f"`__getitem__`. Received: {value.shape} after "
                        f"{column.shape[1:]}, in row {indices[slot]}"
                    )
                column[slot] = value[()]
        return columns

    def _examples(self, rows: np.ndarray) -> list[Any]:
        numbers = [int(row) for row in rows]
        if isinstance(self._x, np.ndarray):
            inputs = list(self._x[rows])
        elif hasattr(self._x, "__getitems__"):  # tfds and others read many at once.
            inputs = list(self._x.__getitems__(numbers)) if numbers else []
        else:
            inputs = list(self._pool.map(self._x.__getitem__, numbers))
        return [self._pair(x, n) for x, n in zip(inputs, numbers, strict=True)]

    def _pair(self, example: Any, number: int) -> tuple[Any, Any]:
        """`(x, y)` of one example, whatever form the source gives it."""
        if isinstance(self._y, str):
            if not isinstance(example, dict) or self._y not in example:
                raise ValueError(
                    "Argument `y` must name an entry of each example. Received: "
                    f"y={self._y!r} and examples of "
                    f"{sorted(example) if isinstance(example, dict) else type(example)}"
                )
            inputs = {k: v for k, v in example.items() if k != self._y}
            (*_, last) = inputs.values()
            return (last if len(inputs) == 1 else inputs), example[self._y]
        if self._y is not None:
            return example, self._y[number]
        if isinstance(example, (tuple, list)) and len(example) == 2:
            return tuple(example)
        if isinstance(example, tuple):
            raise ValueError(
                "Argument `x` must give `x` or `(x, y)` for each number. Pass weights "
                f"as the array `sample_weight`. Received: {len(example)} values"
            )
        return example, None


def _as_array(leaf: Any) -> np.ndarray:
    value = np.asarray(leaf)
    if value.dtype.kind in "US":
        value = value.astype(object)
    if value.dtype == object:  # Text, which TensorFlow wants as bytes.
        encode = np.frompyfunc(
            lambda text: text.encode() if isinstance(text, str) else text, 1, 1
        )
        return np.asarray(encode(value), object)
    return value


def _zero(leaf: Any) -> np.ndarray:
    """A row of padding like this one."""
    value = _as_array(leaf)
    return np.full(value.shape, b"" if value.dtype == object else 0, value.dtype)


def _type(zero: np.ndarray) -> tf.DType:
    return tf.string if zero.dtype == object else tf.as_dtype(zero.dtype)
