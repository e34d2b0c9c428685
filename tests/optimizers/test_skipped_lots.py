"""An update that leaves lots out must not spread an example's cost over them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

X = np.random.default_rng(0).normal(size=[50, 3]).astype("float32")


class EachFifthLot(keras.Model):
    """Updates on the first lot of each pass of five, and on no other."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.steps_seen = tf.Variable(0, trainable=False)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        self.steps_seen.assign_add(1)

        def update():
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True), weight)
                scaled = self.optimizer.scale_loss(loss)
            variables = self.trainable_variables
            gradients = tape.gradient(scaled, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        due = self.steps_seen % 5 == 1
        return {"loss": tf.cond(due, update, lambda: tf.constant(0.0))}


def compiled():
    model = EachFifthLot()
    model(X[:1])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=1.0), loss="mse")
    return model


SAMPLERS = {
    "fixed order": lambda: dp.data.fixed_order_batches(X, X[:, :1], batch_size=11),
    "shuffled": lambda: dp.data.shuffled_batches(X, X[:, :1], batch_size=11),
    "cyclic": lambda: dp.data.cyclic_poisson_batches(X, X[:, :1], 10, cycle=5),
    "balls in bins": lambda: dp.data.balls_in_bins_batches(X, X[:, :1], 10),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("accounted", [False, True])
def test_lots_of_a_pass_cannot_be_left_out(name, accounted):
    model = compiled()
    before = model.get_weights()
    callbacks = [dp.PrivacyAccountant(delta=1e-3)] if accounted else []
    with pytest.raises(ValueError, match="may leave lots out"):
        model.fit(SAMPLERS[name](), epochs=2, verbose=0, callbacks=callbacks)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_poisson_lots_can_and_pay_for_what_was_released():
    model = compiled()
    lots = dp.data.poisson_batches(X, X[:, :1], 10)
    model.fit(lots, epochs=2, verbose=0)
    releases = int(model.optimizer.releases.numpy())
    assert releases == 2
    release = dp.accounting.GaussianRelease(1.0), lots.dp_sampling.sampling, releases
    assert model.optimizer.ledger.epsilon(delta=1e-3) == pytest.approx(
        dp.accounting.epsilon_rdp([release], 1e-3)
    )
    # The step that was traced is not used for other data either.
    with pytest.raises(ValueError, match="may leave lots out"):
        model.fit(SAMPLERS["shuffled"](), epochs=1, verbose=0)
    assert int(model.optimizer.releases.numpy()) == releases


class EachFifthLotEagerly(EachFifthLot):
    """The same, decided in Python: nothing of it can be read off a graph."""

    def __init__(self, by_function):
        super().__init__()
        self.by_function = by_function

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.steps_seen.assign_add(1)
        if int(self.steps_seen) % 5 == 1:

            def losses():
                return tf.reduce_mean(tf.square(self(x, training=True) - y), axis=1)

            if self.by_function:
                self.optimizer.minimize(losses, self.trainable_variables)
            else:
                with tf.GradientTape() as tape:
                    values = losses()
                self.optimizer.minimize(values, self.trainable_variables, tape=tape)
        return {"loss": tf.constant(0.0)}


def compiled_eagerly(by_function):
    model = EachFifthLotEagerly(by_function)
    model(X[:1])
    optimizer = dp.optimizers.DPSGD(noise_multiplier=1.0)
    model.compile(optimizer, loss="mse", run_eagerly=True)
    return model


@pytest.mark.filterwarnings("ignore:Losses that were computed eagerly")
@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.parametrize("accounted", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_lots_of_a_pass_cannot_be_left_out_eagerly(name, accounted, by_function):
    model = compiled_eagerly(by_function)
    before = model.get_weights()
    callbacks = [dp.PrivacyAccountant(delta=1e-3)] if accounted else []
    with pytest.raises(ValueError, match="may leave lots out"):
        model.fit(SAMPLERS[name](), epochs=2, verbose=0, callbacks=callbacks)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.filterwarnings("ignore:Losses that were computed eagerly")
def test_arrays_are_passes_too():
    model = compiled_eagerly(by_function=False)
    with pytest.raises(ValueError, match="may leave lots out"):
        model.fit(X, X[:, :1], batch_size=11, verbose=0)


@pytest.mark.filterwarnings("ignore:Losses that were computed eagerly")
@pytest.mark.parametrize("by_function", [False, True])
def test_poisson_lots_can_be_left_out_eagerly(by_function):
    model = compiled_eagerly(by_function)
    model.fit(dp.data.poisson_batches(X, X[:, :1], 10), epochs=2, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 2
