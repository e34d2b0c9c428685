"""Keeps XLA from computing a value anew in every kernel that uses it.

XLA's fusion for CPUs copies an op into each kernel that reads its result, unless it knows
the op to be slow, and with it all ops that it stands on. A draw of noise for a hundred
variables was compiled, and its words computed, in a hundred kernels; so was the sum of the
norms of all layers, which every clipped sum reads. The programs grew with the square of
the depth, and compiling them took 80% of the first step of BERT with 12 layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.rules.device import is_compiled_for_cpu


def made_once(
    make: Callable[[], tf.Tensor],
    shape: Any,
    dtype: tf.DType,
    unknown: tf.Tensor,
) -> tf.Tensor:
    """What `make` returns; under XLA on a CPU, such that it is computed once.

    XLA does not look into a loop whose length it cannot know. This one has one turn
    whatever `unknown` is, and more turns would make the same.

    Args:
        make: Makes a tensor.
        shape: Its shape: static, or a tensor.
        dtype: Its type, float32 or float64.
        unknown: A tensor whose value is not known before the step runs.
    """
    if not is_compiled_for_cpu():
        return make()
    unknown = tf.reshape(unknown, [-1])[:1] > tf.ones([], unknown.dtype)
    turns = tf.maximum(1, tf.reduce_sum(tf.cast(unknown, tf.int32)))
    # Never seen, as there is a turn: not zeros, which would be no noise, or no norm.
    nothing = tf.fill(shape, tf.constant(float("nan"), dtype))
    _, made = tf.while_loop(
        lambda turn, _: turn < turns,
        lambda turn, _: (turn + 1, make()),
        (tf.constant(0), nothing),
    )
    return made
