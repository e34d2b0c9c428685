"""Large arrays whose memory goes back to the operating system at once.

What TensorFlow has allocated for tensors it never gives back, and what `malloc` has only
now and then: all that the probe holds would be held for the rest of the training.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Smaller ones are not worth a mapping of their own.
_LEAST_BYTES = 2**16

# Elsewhere than on Unix there is only one kind.
_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    if hasattr(mmap, "MAP_ANONYMOUS")
    else {}
)


def empty(shape: Sequence[int]) -> np.ndarray:
    """A float32 array, not filled."""
    size = 4 * math.prod(shape)
    if size < _LEAST_BYTES:
        return np.empty(shape, np.float32)
    return np.frombuffer(mmap.mmap(-1, size, **_PRIVATE), np.float32).reshape(shape)


def copied(array: np.ndarray) -> np.ndarray:
    """A copy, where it is worth it and of a type that is large."""
    if array.dtype != np.float32 or array.nbytes < _LEAST_BYTES:
        return array
    copy = empty(array.shape)
    copy[...] = array
    return copy


def as_tensor(array: np.ndarray) -> tf.Tensor:
    """The same numbers as a tensor, in the same memory where it is an array of `empty`.

    They must not change any more.
    """
    if array.nbytes < _LEAST_BYTES:
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
