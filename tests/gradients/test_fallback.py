"""The slow way: what it must not do to the rest of a process."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import fallback


def test_a_way_that_cannot_be_taken_leaves_nothing_behind():
    """`tf.map_fn` leaves a caching device, with which `strategy.scope()` fails."""
    scope = tf.compat.v1.get_variable_scope()
    before = scope.caching_device

    @tf.function(input_signature=[tf.TensorSpec([4])], autograph=False)
    def run(x):
        with pytest.raises(ZeroDivisionError):
            fallback._map_fn(lambda row: 1 / 0, x)
        return x

    run(np.ones(4, np.float32))
    assert scope.caching_device is before
