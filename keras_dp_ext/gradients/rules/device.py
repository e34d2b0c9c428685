"""What the step that is being traced will run on, as far as rules care."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import tensorflow as tf

from keras_dp_ext._compat import tf_internals

_ASSUMES_GPU = contextvars.ContextVar("keras_dp_ext_assumes_gpu", default=False)


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Inside it, steps are traced as on a machine with a GPU; for audits."""
    token = _ASSUMES_GPU.set(True)
    try:
        yield
    finally:
        _ASSUMES_GPU.reset(token)


def is_compiled() -> bool:
    """Whether XLA will compile the graph that is being traced."""
    return tf_internals.is_compiled(tf.compat.v1.get_default_graph())


def is_compiled_for_cpu() -> bool:
    """Whether XLA will compile the graph that is being traced for a CPU."""
    has_gpu = _ASSUMES_GPU.get() or tf.config.list_physical_devices("GPU")
    return is_compiled() and not has_gpu


def runs_on_cpu() -> bool:
    """Whether TensorFlow's own CPU kernels will run, which loops can call.

    XLA runs loops one by one, without threads (30 times slower for a convolution),
    and accelerators need large kernels.
    """
    if is_compiled() or _ASSUMES_GPU.get():
        return False
    return not tf.config.list_physical_devices("GPU")


def integer_dtype() -> tf.DType:
    """The integers for arithmetic on many numbers.

    On a GPU without XLA, TensorFlow computes with 32-bit integers on the host: it
    takes them for shapes. Everywhere else they are the faster ones.
    """
    return tf.int32 if is_compiled() or runs_on_cpu() else tf.int64


def has_fast_matrix_products() -> bool:
    """Whether matrices are multiplied by oneDNN (processors with AVX-512 VNNI).

    With it, batched products of small matrices are up to ten times faster than one
    call of a convolution's kernel for each example; without it, slower.
    """
    return tf_internals.multiplies_by_onednn()
