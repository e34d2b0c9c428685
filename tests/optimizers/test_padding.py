"""Rows of padding are no examples, whatever the loss makes of them.

A new example takes the place of a padding row. If that row had a gradient, the sum
moves by twice the bound, and epsilon is that of half the noise.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

CLIP = 1.0


class ActivityPenalty(keras.layers.Layer):
    """As the KL term of a VAE: a loss that knows no sample weight."""

    def call(self, x):
        self.add_loss(10.0 * keras.ops.mean(keras.ops.square(x - 3.0), axis=-1))
        return x


def dense(**arguments):
    return keras.layers.Dense(2, kernel_initializer="ones", **arguments)


def activity_regularizer():
    return keras.Sequential(
        [keras.Input([4]), dense(activity_regularizer=keras.regularizers.L2(3.0))]
    )


def add_loss():
    return keras.Sequential([keras.Input([4]), dense(), ActivityPenalty()])


class IgnoresWeightsInLoss(keras.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        return keras.ops.mean(keras.ops.square(y - y_pred + 5.0))


def compute_loss():
    return IgnoresWeightsInLoss([keras.Input([4]), dense()])


class IgnoresWeightsInStep(keras.Sequential):
    def train_step(self, data):
        x, y, _ = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(y - self(x) + 5.0))
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_weights, strict=True)
        )
        return {"loss": loss}


def train_step():
    return IgnoresWeightsInStep([keras.Input([4]), dense()])


class CallsAnInnerFunction(IgnoresWeightsInStep):
    @tf.function
    def inner(self, data):
        return super().train_step(data)

    def train_step(self, data):
        return self.inner(data)


def inner_function():
    return CallsAnInnerFunction([keras.Input([4]), dense()])


class Minimizes(keras.Sequential):
    def train_step(self, data):
        x, y, _ = data
        losses = keras.ops.mean(keras.ops.square(y - self(x) + 5.0), axis=-1)
        self.optimizer.minimize(losses, self.trainable_weights)
        return {"loss": keras.ops.mean(losses)}


def minimize():
    return Minimizes([keras.Input([4]), dense()])


class MinimizesEagerly(keras.Sequential):
    def compile(self, optimizer, loss, jit_compile=False):
        del jit_compile  # There is nothing to compile.
        super().compile(optimizer, loss, run_eagerly=True)

    def train_step(self, data):
        x, y, _ = data
        with tf.GradientTape(persistent=True) as tape:
            losses = keras.ops.mean(keras.ops.square(y - self(x) + 5.0), axis=-1)
        self.optimizer.minimize(losses, self.trainable_weights, tape=tape)
        return {"loss": keras.ops.mean(losses)}


def eagerly():
    return MinimizesEagerly([keras.Input([4]), dense()])


MODELS = [
    activity_regularizer,
    add_loss,
    compute_loss,
    train_step,
    inner_function,
    minimize,
    eagerly,
]


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=[9, 4]).astype(np.float32)
    x[8] = 100.0  # Pulls against what padding pulls at.
    return x[:count], np.zeros([count, 2], np.float32)


def released_sum(build, count: int, jit_compile: bool, **arguments) -> np.ndarray:
    """What one release adds up before noise, with every example in the lot."""
    model = build()
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=1.0,
            l2_norm_clip=CLIP,
            noise_multiplier=0.0,
            expected_batch_size=8,
            **arguments,
        ),
        loss="mse",
        jit_compile=jit_compile,
    )
    before = np.concatenate([np.ravel(w) for w in model.get_weights()])
    lots = dp.data.poisson_batches(
        *examples(count), batch_size=count, physical_batch_size=16, steps_per_epoch=1
    )
    model.fit(lots, verbose=0)
    after = np.concatenate([np.ravel(w) for w in model.get_weights()])
    return 8.0 * (before - after)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("build", MODELS)
def test_a_new_example_moves_the_sum_by_one_clip_only(build, jit_compile):
    without = released_sum(build, 8, jit_compile)
    shift = released_sum(build, 9, jit_compile) - without
    assert np.linalg.norm(shift) <= CLIP * 1.0001
    assert np.linalg.norm(shift) > 0.5 * CLIP  # The attack is one.


@pytest.mark.parametrize("build", MODELS)
def test_a_lot_of_padding_only_releases_nothing_but_noise(build):
    """An example of weight 0 is padding, too."""
    model = build()
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, noise_multiplier=0.0), loss="mse"
    )
    before = model.get_weights()
    x, y = examples(8)
    model.fit(x, y, sample_weight=np.zeros(8), batch_size=8, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_microbatches_of_padding_contribute_nothing():
    """One example in 16 slots: one of the 8 pairs may have a gradient."""
    # The sum is divided by the expected number of pairs, 4.
    total = released_sum(add_loss, 1, False, num_microbatches=8) / 2
    assert 0 < np.linalg.norm(total) <= CLIP * 1.0001


@pytest.mark.parametrize("batch_size", [8, 24])
@pytest.mark.parametrize("regularised", [False, True])
def test_the_loss_in_the_log_is_the_mean_over_examples(batch_size, regularised):
    rng = np.random.default_rng(1)
    x = rng.normal(size=[24, 4]).astype(np.float32)
    y = rng.normal(size=[24, 2]).astype(np.float32)
    penalty = keras.regularizers.L2(0.25) if regularised else None
    model = keras.Sequential([keras.Input([4]), dense(kernel_regularizer=penalty)])
    model.compile(dp.optimizers.DPSGD(learning_rate=0.0, noise_multiplier=1.0), "mse")
    truth = model.evaluate(x, y, verbose=0)
    # So many that chance moves the mean by a hundredth.
    lots = dp.data.poisson_batches(
        x, y, batch_size=batch_size, steps_per_epoch=1000, physical_batch_size=48
    )
    logged = model.fit(lots, verbose=0).history["loss"][0]
    # With every example in every lot the mean is exact.
    tolerance = 1e-4 if batch_size == 24 else 0.15
    np.testing.assert_allclose(logged, truth, rtol=tolerance)


def test_metrics_that_count_padding_get_a_warning():
    x, y = examples(8)
    model = activity_regularizer()
    model.compile(dp.optimizers.DPSGD(), "mse", metrics=["mae"])
    lots = dp.data.poisson_batches(x, y, batch_size=4, steps_per_epoch=1)
    with pytest.warns(UserWarning, match=r"weighted_metrics=\['mae'\]"):
        model.fit(lots, verbose=0)


def test_a_padded_lot_in_a_training_function_of_ones_own_is_refused():
    """Where the step's data cannot be seen, nobody knows which rows are padding."""

    class OwnFunction(keras.Sequential):
        def make_train_function(self, force=False):
            @tf.function
            def function(iterator):
                return self.train_step(next(iterator))

            self.train_function = function

    model = OwnFunction([keras.Input([4]), dense()])
    model.compile(dp.optimizers.DPSGD(), "mse")
    lots = dp.data.poisson_batches(*examples(8), batch_size=4, steps_per_epoch=1)
    with pytest.raises(ValueError, match="which rows are padding"):
        model.fit(lots, verbose=0)


class MaskedMean(keras.layers.Layer):
    """Divides by the number of words, which is 0 for a row of padding."""

    def call(self, words, tokens):
        mask = keras.ops.cast(keras.ops.not_equal(tokens, 0), "float32")[..., None]
        return keras.ops.sum(words * mask, 1) / keras.ops.sum(mask, 1)


def test_padding_that_the_model_cannot_digest_does_not_reach_the_log(rng):
    tokens = keras.Input((5,), dtype="int32")
    words = keras.layers.Embedding(9, 4)(tokens)
    outputs = keras.layers.Dense(2)(MaskedMean()(words, tokens))
    model = keras.Model(tokens, outputs)
    model.compile(
        dp.optimizers.DPSGD(learning_rate=0.0, noise_multiplier=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = rng.integers(1, 9, (60, 5)), rng.integers(0, 2, 60)
    batches = dp.data.poisson_batches(x, y, batch_size=60)  # All examples, padded.
    stop = keras.callbacks.TerminateOnNaN()
    history = model.fit(batches, epochs=2, verbose=0, callbacks=[stop]).history["loss"]
    truth = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(history, [truth] * 2, rtol=1e-5)
