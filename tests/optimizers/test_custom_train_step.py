"""A `train_step` of the user's own, as Keras' guides write it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_train_step_as_in_keras_guide_is_the_ordinary_one(jit_compile):
    """keras.io, "Customizing what happens in fit()": `optimizer.apply`."""

    class Custom(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
                loss = self.optimizer.scale_loss(loss)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply(gradients, variables)
            return {"loss": loss}

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=[60, 3]), rng.normal(size=[60, 1])
    weights = []
    for kind in (keras.Model, Custom):
        keras.utils.set_random_seed(0)
        inputs = keras.Input([3])
        model = kind(inputs, keras.layers.Dense(1)(inputs))
        optimizer = dp.optimizers.DPSGD(learning_rate=0.1, noise_seed=3)
        model.compile(optimizer, loss="mse", jit_compile=jit_compile)
        model.fit(x, y, batch_size=20, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for ordinary, custom in zip(*weights, strict=True):
        np.testing.assert_allclose(custom, ordinary, rtol=1e-5)


def test_apply_wants_the_variables_and_a_loss():
    optimizer = dp.optimizers.DPSGD(learning_rate=0.1)
    with pytest.raises(ValueError, match="`trainable_variables` must be given"):
        optimizer.apply([tf.ones([2])])
    with pytest.raises(ValueError, match="needs the loss of each example"):
        optimizer.apply([tf.ones([2])], [keras.Variable(np.ones(2))])
