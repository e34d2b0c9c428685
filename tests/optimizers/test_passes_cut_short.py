"""A pass over the data that ends early within one `fit` counts as a whole one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

SIZE, STEPS, DELTA = 60, 6, 1e-3
X = np.random.default_rng(0).normal(size=[SIZE, 3]).astype("float32")
DATA = {"batch_size": 10}

SAMPLERS = {
    "arrays": lambda: (X, X[:, :1]),
    "pipeline": lambda: (
        tf.data.Dataset.from_tensor_slices((X, X[:, :1])).shuffle(SIZE).batch(10),
    ),
    "shuffled": lambda: (dp.data.shuffled_batches(X, X[:, :1], 11),),
    "fixed order": lambda: (dp.data.fixed_order_batches(X, X[:, :1], 11),),
    "cyclic": lambda: (dp.data.cyclic_poisson_batches(X, X[:, :1], 10, cycle=6),),
    "balls in bins": lambda: (dp.data.balls_in_bins_batches(X, X[:, :1], 10),),
}


class EndEpochsEarly(keras.callbacks.Callback):
    """As a limit of time for each epoch would: the next epoch begins all the same."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training |= batch == self.after - 1

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = False


def compiled(**arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0, **arguments), loss="mse")
    return model


def fit(model, data, epochs, *callbacks):
    batching = DATA if len(data) == 2 else {}
    model.fit(*data, epochs=epochs, verbose=0, callbacks=callbacks, **batching)
    return model.optimizer.ledger.epsilon(delta=DELTA)


def spent(sampling, *counts):
    release = dp.accounting.GaussianRelease(2.0)
    return dp.accounting.epsilon([(release, sampling, n) for n in counts], DELTA)


@pytest.mark.parametrize(
    "name,accounted",
    [*((name, False) for name in SAMPLERS), ("arrays", True), ("balls in bins", True)],
)
def test_each_beginning_of_a_pass_counts(name, accounted):
    """Of four epochs of two steps each an example may take part in the first."""
    model = compiled()
    accountant = [dp.PrivacyAccountant(delta=DELTA)] if accounted else []
    epsilon = fit(model, SAMPLERS[name](), 4, EndEpochsEarly(2), *accountant)
    sampling = model.optimizer.ledger.segments[0].sampling
    assert sampling.period > 4
    assert epsilon == pytest.approx(spent(sampling, 2, 2, 2, 2), rel=1e-9)
    assert epsilon > 1.3 * spent(sampling, 8)


def test_correlated_noise_begins_anew_with_a_pass_that_was_cut():
    optimizer = dp.optimizers.BandMFSGD(noise_multiplier=2.0, bands=3)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    cut = fit(model, SAMPLERS["fixed order"](), 3, EndEpochsEarly(2))
    counts = [count for _, _, count in optimizer.ledger.entries()]
    assert counts == [2, 2, 2]
    assert int(optimizer._spending.run_start.numpy()) == 6
    (claim, sampling, _), *_ = optimizer.ledger.entries()
    runs = [(claim.proven, sampling, 2)] * 3
    assert cut == pytest.approx(dp.accounting.epsilon(runs, DELTA), rel=1e-9)


@pytest.mark.parametrize("name", ["arrays", "pipeline", "poisson"])
def test_no_lot_holds_parts_of_two_passes(name):
    """An example of the first pass could come again at once, in the same lot."""
    model = compiled(gradient_accumulation_steps=2)
    data = (
        (dp.data.poisson_batches(X, X[:, :1], 20, accumulation_steps=2),)
        if name == "poisson"
        else SAMPLERS[name]()
    )
    fit(model, data, 4, EndEpochsEarly(3))
    # One lot of two batches in each epoch; the third batch is left out.
    assert int(model.optimizer.releases.numpy()) == 4


def asserted(name, batches):
    (data,) = SAMPLERS[name]()
    return (data.apply(tf.data.experimental.assert_cardinality(batches)),)


@pytest.mark.parametrize("name", ["pipeline", "shuffled"])
def test_a_cardinality_that_is_asserted_ends_epochs_early(name):
    """Keras believes it, and begins the next pass with each epoch."""
    epsilon = fit(compiled(), asserted(name, 2), 4)
    assert epsilon == pytest.approx(spent(dp.accounting.FullBatch(), 4), rel=1e-9)


@pytest.mark.parametrize("name", ["fixed order", "cyclic", "balls in bins"])
def test_places_in_a_pass_need_whole_passes(name):
    model = compiled()
    with pytest.raises(ValueError, match="assert_cardinality"):
        fit(model, asserted(name, 2), 4, dp.PrivacyAccountant(delta=DELTA))
    assert int(model.optimizer.releases.numpy()) == 0


@pytest.mark.parametrize("name", ["pipeline", "balls in bins"])
def test_a_cardinality_that_is_true_changes_nothing(name):
    model = compiled()
    epsilon = fit(model, asserted(name, STEPS), 2)
    (segment, _) = model.optimizer.ledger.segments  # The last is of what may follow.
    assert segment.sampling.period == STEPS
    assert epsilon == pytest.approx(spent(segment.sampling, 2 * STEPS), rel=1e-9)


def test_a_budget_holds_though_another_callback_goes_on():
    data, one_pass = SAMPLERS["arrays"](), spent(dp.accounting.FullBatch(), 1)
    model = compiled()
    accountant = dp.PrivacyAccountant(delta=DELTA, target_epsilon=1.2 * one_pass)
    with pytest.raises(ValueError, match="target_epsilon"):
        fit(model, data, 4, accountant, EndEpochsEarly(2))
    assert int(model.optimizer.releases.numpy()) == 2
    assert model.optimizer.ledger.epsilon(delta=DELTA) <= 1.2 * one_pass


def test_a_budget_that_is_spent_ends_the_training_for_good():
    model = compiled()
    accountant = dp.PrivacyAccountant(delta=DELTA, target_epsilon=2.0)
    lots = dp.data.poisson_batches(X, X[:, :1], 10)
    with pytest.raises(ValueError, match="target_epsilon"):
        fit(model, (lots,), 100, accountant, EndEpochsEarly(10**9))
    assert model.optimizer.ledger.epsilon(delta=DELTA) <= 2.0


class MoreUpdatesLater(keras.callbacks.Callback):
    """From the third batch on each batch is used twice, by a step that is traced anew."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            self.model.updates = 2
            self.model.make_train_function(force=True)


class SeveralUpdates(keras.Model):
    updates = 1

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        for _ in range(self.updates):
            logs = super().train_step(data)
        return logs


def test_a_pass_of_balls_in_bins_has_one_cost_for_all_of_its_lots():
    """Who was in none of the quiet lots is known to be in one of the others."""
    model = SeveralUpdates()
    model(X[:1])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    with pytest.raises(ValueError, match="whole passes of 6 steps"):
        fit(model, SAMPLERS["balls in bins"](), 2, MoreUpdatesLater())
    assert int(model.optimizer.releases.numpy()) == 2


def test_lots_that_are_drawn_by_themselves_may_cost_more_later():
    model = SeveralUpdates()
    model(X[:1])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    lots = dp.data.poisson_batches(X, X[:, :1], 10)
    fit(model, (lots,), 1, MoreUpdatesLater())
    assert int(model.optimizer.releases.numpy()) == 2 + 4 * 2
