"""Parts of Keras that are not public.

Each function says what it relies on, and since when; "3.3" stands for the oldest Keras
that was looked at. What is missing is an `IncompatibleVersionError`, never a default.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from keras_dp_ext._compat.versions import require


def components(variable: keras.Variable | tf.Variable) -> list[tf.Variable]:
    """The TensorFlow variables behind a variable: one for each local replica.

    Relies on `keras.Variable._value` (3.3): `value` is a tensor while a layer of mixed
    precision is called. And on `DistributedVariable.values` (TensorFlow 2.16).
    """
    value = variable
    if isinstance(variable, keras.Variable):
        value = require(variable, "_value")
    if isinstance(value, tf.distribute.DistributedValues):
        return list(require(value, "values"))
    return [value]
