"""What the step that is being traced will run on, as far as rules care."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext._compat import tf_internals


def is_compiled() -> bool:
    """Whether XLA will compile the graph that is being traced."""
    return tf_internals.is_compiled(tf.compat.v1.get_default_graph())


def runs_on_cpu() -> bool:
    """Whether TensorFlow's own CPU kernels will run, which loops can call.

    XLA runs loops one by one, without threads (30 times slower for a convolution),
    and accelerators need large kernels.
    """
    return not is_compiled() and not tf.config.list_physical_devices("GPU")


def has_fast_matrix_products() -> bool:
    """Whether matrices are multiplied by oneDNN (processors with AVX-512 VNNI).

    With it, batched products of small matrices are up to ten times faster than one
    call of a convolution's kernel for each example; without it, slower.
    """
    return tf_internals.multiplies_by_onednn()
