"""Per-example gradients against one tape for each microbatch."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.gradients import per_example_gradients


@pytest.fixture
def check_against_tape():
    """`check(model, x, static, group, jit_compile)`: norms and sums, by a rule."""

    def losses_of(model, x):
        outputs = model(x)
        axes = list(range(1, outputs.shape.rank))
        return tf.reduce_sum(tf.square(outputs - 0.3), axis=axes)

    def check(model, x, static, group, jit_compile):
        variables = model.trainable_variables
        count = len(x) // group
        coefficients = np.linspace(0.5, 1.5, count).astype("float32")
        shape = [len(x) if static else None, *x.shape[1:]]

        @tf.function(input_signature=[tf.TensorSpec(shape)], jit_compile=jit_compile)
        def run(x):
            gradients = per_example_gradients(losses_of(model, x), variables, group)
            return gradients.norm_squared(), gradients.weighted_sum(coefficients)

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # No slow path.
            norms, sums = run(x)
        rows = []
        for start in range(0, len(x), group):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(losses_of(model, x[start : start + group]))
            gradients = tape.gradient(loss, [v.value for v in variables])
            rows.append([tf.convert_to_tensor(g) for g in gradients])
        truth = [np.stack(column) for column in zip(*rows, strict=True)]
        squares = [np.sum(np.reshape(t, (count, -1)) ** 2, axis=1) for t in truth]
        np.testing.assert_allclose(norms, sum(squares), rtol=1e-4)
        for found, expected in zip(sums, truth, strict=True):
            expected = np.tensordot(coefficients, expected, 1)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    return check
