"""What the errors say to people who write their own `train_step` or loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_dp_ext as dp


def optimizer():
    return dp.optimizers.DPSGD(
        learning_rate=0.1, l2_norm_clip=1.0, noise_multiplier=1.0
    )


class Critic(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x)

    def compile(self, critic_optimizer):
        super().compile(loss="mse")
        self.critic_optimizer = critic_optimizer

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.critic_optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}


def test_a_training_step_that_keeps_its_loss_is_told_the_line_to_write(rng):
    model = Critic()
    model.compile(optimizer())
    x, y = rng.normal(size=(16, 3)), rng.normal(size=(16, 2))
    with pytest.raises(ValueError) as caught:
        model.fit(x, y, batch_size=8, verbose=0)
    assert "`Critic.train_step`" in str(caught.value)
    assert "loss = self.critic_optimizer.scale_loss(loss)" in str(caught.value)
    assert "model.fit" not in str(caught.value)


def test_a_gan_that_stacks_real_and_generated_rows_is_told_what_to_write(rng):
    class Stacked(Critic):
        def train_step(self, real):
            rows = ops.concatenate([real, ops.zeros_like(real)])
            loss = ops.mean(ops.square(self(rows)))
            loss = self.critic_optimizer.scale_loss(loss)
            self.critic_optimizer.apply_gradients(
                (None, v) for v in self.trainable_variables
            )
            return {"loss": loss}

    model = Stacked()
    model.compile(optimizer())
    with pytest.raises(ValueError, match=r"losses = loss\(real\) \+ loss\(fake\)"):
        model.fit(rng.normal(size=(16, 3)), batch_size=8, verbose=0)


def tagger():
    return keras.Sequential([layers.Embedding(30, 8), layers.Dense(4)])


def masked(y, p):
    losses = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    return losses, ops.cast(y > 0, "float32")


def test_a_mean_over_the_unmasked_tokens_of_the_batch_is_refused_with_the_remedy(rng):
    def per_batch(y, p):
        losses, mask = masked(y, p)
        return ops.sum(losses * mask) / ops.sum(mask)

    def per_example(y, p):
        losses, mask = masked(y, p)
        return ops.sum(losses * mask, axis=-1) / ops.maximum(ops.sum(mask, axis=-1), 1)

    x, y = rng.integers(0, 30, (16, 9)), rng.integers(0, 4, (16, 9))
    model = tagger()
    model.compile(optimizer(), loss=per_batch)
    with pytest.raises(ValueError, match=r"counted in the whole batch.*axis=-1"):
        model.fit(x, y, batch_size=8, verbose=0)
    model = tagger()
    model.compile(optimizer(), loss=per_example)
    model.fit(x, y, batch_size=8, verbose=0)


def test_sample_weights_of_whole_examples_are_still_fine(rng):
    model = tagger()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(), loss=loss)
    x, y = rng.integers(0, 30, (16, 9)), rng.integers(0, 4, (16, 9))
    model.fit(x, y, sample_weight=np.ones((16, 1)), batch_size=8, verbose=0)


def test_an_h5_file_cannot_keep_the_spent_budget_and_says_so(rng, tmp_path):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile(optimizer(), loss=keras.losses.MeanSquaredError())
    model.fit(rng.normal(size=(8, 3)), rng.normal(size=(8, 2)), verbose=0)
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match=r"Save as `\.keras`"):
        keras.models.load_model(tmp_path / "model.h5")


class BalancedExperts(keras.layers.Layer):
    """As in mixtures of experts: a loss of the whole batch, with a coefficient."""

    def __init__(self, coefficient):
        super().__init__()
        self.coefficient = coefficient

    def call(self, x):
        load = ops.mean(ops.softmax(x), axis=0)
        self.add_loss(self.coefficient * ops.sum(ops.square(load)))
        return x


def test_a_loss_that_balances_experts_can_be_switched_off(rng):
    x, y = rng.normal(size=(16, 3)), rng.normal(size=(16, 2))
    for coefficient in (0.1, 0.0):
        experts = BalancedExperts(coefficient)
        model = keras.Sequential([keras.Input((3,)), layers.Dense(2), experts])
        model.compile(optimizer(), loss="mse")
        if coefficient:
            with pytest.raises(ValueError, match="router_aux_loss_coef=0"):
                model.fit(x, y, batch_size=8, verbose=0)
        else:
            model.fit(x, y, batch_size=8, verbose=0)
