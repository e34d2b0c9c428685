"""What the tests of directional noise share."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms.directional import Directional

_INITIAL = {"zeros": np.zeros, "ones": np.ones}


class Harness:
    """A mechanism on its own, with the optimizer's part played by hand."""

    def __init__(self, shapes, **kwargs):
        self.shapes = [tuple(shape) for shape in shapes]
        self.mechanism = Directional(**kwargs)
        variables = [
            keras.Variable(np.zeros(shape), name=f"v{i}")
            for i, shape in enumerate(self.shapes)
        ]
        self.state = {}
        self.mechanism.build(variables, self._add_variable)
        self.step = 0

    def _add_variable(self, shape, dtype, name, initializer, saved=True):
        variable = keras.Variable(_INITIAL[initializer](shape), dtype=dtype, name=name)
        assert name not in self.state
        self.state[name] = variable
        return variable

    def scales(self):
        flat = self.state["scale"].numpy()
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        pieces = np.split(flat, ends)
        return [np.reshape(*pair) for pair in zip(pieces, self.shapes, strict=True)]

    def bound(self, rows):
        return [t.numpy() for t in self._bound([tf.constant(r) for r in rows])]

    @tf.function(reduce_retracing=True)
    def _bound(self, rows):
        return self.mechanism.bound(MaterializedGradients(rows))

    def noise(self, seed):
        seed = tf.constant(seed)
        return [n.numpy() for n in self._noise(seed, tf.constant(self.step, tf.int64))]

    @tf.function
    def _noise(self, seed, step):
        return self.mechanism.draw_noise(self.shapes, seed, step)

    def noises(self, count):
        """`[count, coordinates]`: many draws for the same release."""
        step = tf.constant(self.step, tf.int64)

        @tf.function
        def draw(index):
            noise = self.mechanism.draw_noise(self.shapes, tf.stack([index, 977]), step)
            return tf.concat([tf.reshape(n, [-1]) for n in noise], axis=0)

        return np.stack([draw(index).numpy() for index in tf.range(count)])

    def release(self, rows, seed):
        """One full release; returns the refined sums."""
        noised = [
            tf.constant(bounded + noise)
            for bounded, noise in zip(self.bound(rows), self.noise(seed), strict=True)
        ]
        refined = self._refine(noised, tf.constant(self.step, tf.int64))
        self.step += 1
        return [r.numpy() for r in refined]

    @tf.function
    def _refine(self, noised, step):
        return self.mechanism.refine(noised, step)


@pytest.fixture
def harness():
    return Harness
