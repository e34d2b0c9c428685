"""What the step that is being traced will run on, as far as rules care."""

from __future__ import annotations

import tensorflow as tf


def is_compiled() -> bool:
    """Whether XLA will compile the graph that is being traced."""
    # TensorFlow has no public call for this.
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def prefers_kernels_in_a_loop() -> bool:
    """Whether many calls of a kernel are faster than one product of everything.

    They are on CPUs, where a call costs microseconds. XLA runs loops one by one,
    without threads (30 times slower for a convolution), and accelerators need
    large kernels.
    """
    if is_compiled():
        return False
    return not tf.config.list_physical_devices("GPU")
