"""Correlated noise in training: what is drawn, when it begins again, what it costs."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext import accounting
from keras_dp_ext.accounting import composition, participation

STEPS = 6
NOISES = {
    "banded": dp.noise.Banded(bands=3, steps=STEPS, scale=2.0),
    "inverse": dp.noise.BandedInverse(bands=3, scale=2.0),
    "buffered": dp.noise.BufferedToeplitz(buffers=2, steps=STEPS, scale=2.0),
    "tree": dp.noise.TreeAggregation(scale=2.0),
    "restarted": dp.noise.TreeAggregation(scale=2.0, restart_every=4),
}
every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def optimizer_of(noise, **arguments):
    return dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=dp.bounding.L2Clip(1.0),
        noise=noise,
        **{"learning_rate": 1.0, "expected_batch_size": 1, **arguments},
    )


def noise_only_model(optimizer, size, jit_compile=False):
    """A model whose gradients are 0: its weights are sums of noise."""
    model = keras.Sequential(
        [keras.Input([size]), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    return model


class Weights(keras.callbacks.Callback):
    """The weights after each batch."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_begin(self, logs=None):
        self.values.append(self.model.trainable_variables[0].numpy().ravel())

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(self.model.trainable_variables[0].numpy().ravel())

    @property
    def noise(self):
        """What was added in each release, `[releases, size]`."""
        return -np.diff(np.array(self.values), axis=0)


def lots_of(size, steps, accumulation=1):
    zeros = np.zeros([steps * accumulation - 1, size], np.float32)
    return dp.data.fixed_order_batches(
        zeros,
        np.zeros([len(zeros), 1]),
        batch_size=accumulation,
        accumulation_steps=accumulation,
    )


def drawn_noise(noise, size, steps=STEPS, jit_compile=False, accumulation=1):
    """Noise of one training through `fit`, `[steps, size]`."""
    optimizer = optimizer_of(
        noise, gradient_accumulation_steps=accumulation if accumulation > 1 else None
    )
    model = noise_only_model(optimizer, size, jit_compile)
    weights = Weights()
    lots = lots_of(size, steps, accumulation)
    model.fit(lots, verbose=0, callbacks=[weights])
    assert int(optimizer.releases) == steps
    return weights.noise


def expected_covariance(noise, steps):
    inverse = noise.scale * np.linalg.inv(noise.matrix(steps))
    return inverse @ inverse.T


def assert_covariance(found, noise, steps=STEPS):
    """Within five standard errors of every entry."""
    draws = found.shape[1]
    expected = expected_covariance(noise, steps)
    deviations = np.sqrt(np.outer(np.diag(expected), np.diag(expected)) + expected**2)
    error = np.abs(found @ found.T / draws - expected)
    assert np.max(error / (deviations / np.sqrt(draws))) < 5
    assert np.max(np.abs(found.mean(axis=1)) / np.sqrt(np.diag(expected) / draws)) < 5


@every_noise
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_covariance_over_steps_is_that_of_the_matrix(noise, jit_compile):
    found = drawn_noise(noise, size=100_000, jit_compile=jit_compile)
    assert found.shape == (STEPS, 100_000)
    assert_covariance(found, noise)


@every_noise
def test_a_lot_of_several_batches_is_one_draw(noise):
    found = drawn_noise(noise, size=50_000, accumulation=2)[1::2]
    assert found.shape == (STEPS, 50_000)
    assert_covariance(found, noise)


def test_long_runs_use_the_memory_again_and_again():
    noise = dp.noise.Banded(bands=4, steps=20, scale=1.0)
    assert_covariance(drawn_noise(noise, 20_000, steps=17), noise, 17)


# When a run begins again -------------------------------------------------------


def covariance_of_two(first, second):
    """Greatest correlation between the releases of two runs, in standard errors."""
    return np.max(
        np.abs(first @ second.T)
        / np.outer(np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1))
    ) * np.sqrt(first.shape[1])


@every_noise
def test_restoring_a_checkpoint_twice_never_repeats_noise(noise, tmp_path):
    size = 20_000
    optimizer = optimizer_of(noise)
    model = noise_only_model(optimizer, size)
    lots = lots_of(size, STEPS)
    before = Weights()
    model.fit(lots, verbose=0, callbacks=[before])
    model.save(tmp_path / "model.keras")
    runs = []
    for _ in range(2):
        again = keras.models.load_model(tmp_path / "model.keras")
        weights = Weights()
        again.fit(lots, verbose=0, callbacks=[weights])
        runs.append(weights.noise)
        assert int(again.optimizer.releases) == 2 * STEPS
        segments = again.optimizer.ledger.entries()
        assert [count for _, _, count in segments] == [STEPS, STEPS]
        # The new run has the covariance of a run from its beginning, and none with
        # the noise that was saved with the model.
        assert_covariance(weights.noise, noise)
        assert covariance_of_two(before.noise, weights.noise) < 5
    # Whoever subtracts one from the other sees twice the noise, not none.
    assert covariance_of_two(*runs) < 5
    # In the same process, with the same optimizer, too.
    weights = Weights()
    model.load_weights(tmp_path / "model.keras")
    model.fit(lots, verbose=0, callbacks=[weights])
    assert covariance_of_two(before.noise, weights.noise) < 5
    assert_covariance(weights.noise, noise)


def test_past_noise_is_never_saved(tmp_path):
    model = noise_only_model(optimizer_of(NOISES["banded"]), 1000)
    model.fit(lots_of(1000, STEPS), verbose=0)
    names = [variable.name for variable in model.optimizer.variables]
    assert not any("noise" in name or "seed" in name for name in names)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
        str(tmp_path / "checkpoint")
    )
    keys = [key for key, _ in tf.train.list_variables(str(tmp_path))]
    assert not any(
        "noise" in key or "seed" in key or "run_start" in key for key in keys
    )


@every_noise
def test_a_second_fit_continues_the_run_only_where_the_ledger_does(noise):
    size, lots = 20_000, lots_of(20_000, 3)
    model = noise_only_model(optimizer_of(noise), size)
    weights = Weights()
    model.fit(lots, verbose=0, callbacks=[weights])
    second = Weights()
    model.fit(lots, verbose=0, callbacks=[second])
    assert [count for _, _, count in model.optimizer.ledger.entries()] == [6]
    both = np.concatenate([weights.noise, second.noise])
    assert_covariance(both, noise, 6)
    # Other data have another order: a run of its own.
    other = Weights()
    model.fit(lots_of(size, 3), verbose=0, callbacks=[other])
    assert [count for _, _, count in model.optimizer.ledger.entries()] == [6, 3]
    assert covariance_of_two(both, other.noise) < 5
    # So has a pass that begins before the last one has ended.
    model.fit(lots, verbose=0, steps_per_epoch=2)
    model.fit(lots, verbose=0)
    counts = [count for _, _, count in model.optimizer.ledger.entries()]
    assert counts == [6, 3, 2, 3]


# What it costs -------------------------------------------------------------------


@every_noise
def test_epsilon_after_fit_is_that_of_the_whole_run(noise):
    model = noise_only_model(optimizer_of(noise), 4)
    lots = lots_of(4, 5)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3, accountant="pld")
    history = model.fit(lots, epochs=3, verbose=0, callbacks=[accountant])
    sensitivity = participation.every(noise, 15, 5)
    expected = composition.gaussian_epsilon(noise.scale / sensitivity, 1e-3, "exact")
    assert accountant.epsilon == pytest.approx(expected, rel=1e-3)
    assert history.history["epsilon"] == sorted(history.history["epsilon"])
    assert "fixed order" in accountant.statement()


def test_the_budget_stops_a_training_before_it_is_exceeded():
    noise = dp.noise.Banded(bands=4, steps=30, scale=4.0)
    model = noise_only_model(optimizer_of(noise), 4)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3, target_epsilon=1.2)
    model.fit(lots_of(4, 5), epochs=20, verbose=0, callbacks=[accountant])
    assert 0.8 < accountant.epsilon <= 1.2
    assert 0 < int(model.optimizer.releases) < 100


@pytest.mark.parametrize("accounted", [False, True])
@pytest.mark.parametrize("name", ["banded", "tree"])
@pytest.mark.parametrize(
    "sampled",
    [
        dp.data.poisson_batches,
        dp.data.with_replacement_batches,
        # Three bands in a cycle of two; a tree has no bands at all.
        functools.partial(dp.data.cyclic_poisson_batches, cycle=2),
    ],
)
def test_a_sampling_that_the_proof_does_not_cover_is_refused(sampled, name, accounted):
    model = noise_only_model(optimizer_of(NOISES[name], expected_batch_size=None), 3)
    lots = sampled(np.zeros([40, 3]), np.zeros([40, 1]), batch_size=4)
    callbacks = [dp.callbacks.PrivacyAccountant(delta=1e-3)] if accounted else []
    with pytest.raises(ValueError, match=r"fixed_order|cycle=3"):
        model.fit(lots, verbose=0, callbacks=callbacks)
    assert int(model.optimizer.releases) == 0


def test_banded_noise_on_cyclic_poisson_lots_is_amplified():
    import dp_accounting

    noise = dp.noise.Banded(bands=3, steps=8, scale=1.5)
    model = noise_only_model(optimizer_of(noise, expected_batch_size=None), 3)
    lots = dp.data.cyclic_poisson_batches(
        np.zeros([400, 3]), np.zeros([400, 1]), batch_size=20, cycle=4
    )
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-4)
    model.fit(lots, epochs=2, verbose=0, callbacks=[accountant])
    assert int(model.optimizer.releases) == 40
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(1.5)), 10
    )
    reference = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-4)
    assert accountant.epsilon == pytest.approx(reference, rel=0.01)
    assert "cyclic Poisson" in accountant.statement()


def test_shuffled_arrays_cost_more_than_a_fixed_order_and_are_accounted():
    noise = dp.noise.Banded(bands=8, steps=24, scale=5.0)
    x, y = np.zeros([40, 3]), np.zeros([40, 1])
    model = noise_only_model(optimizer_of(noise, expected_batch_size=None), 3)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    model.fit(x, y, batch_size=5, epochs=3, verbose=0, callbacks=[accountant])
    run = accounting.CorrelatedRelease(5.0, noise)
    fixed = accounting.epsilon([(run, accounting.FixedOrder(8), 24)], 1e-3)
    full = accounting.epsilon([(run, accounting.FullBatch(), 24)], 1e-3)
    assert fixed < accountant.epsilon < full


def test_what_cannot_be_correlated_is_refused():
    noise = NOISES["banded"]
    with pytest.raises(ValueError, match="No bound on epsilon is known"):
        dp.optimizers.make_private(
            keras.optimizers.SGD, bound=dp.bounding.Encoding(), noise=noise
        )
    with pytest.raises(ValueError, match="refine"):
        optimizer_of(noise, refine=dp.refining.KSDenoising())


def test_two_updates_on_one_lot_are_refused():
    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y, _ = data
            for _ in range(2):
                losses = keras.losses.mean_squared_error(y, self(x))
                self.optimizer.minimize(losses, self.trainable_variables)
            return {}

    model = Twice()
    model.compile(optimizer_of(NOISES["banded"]), loss="mse")
    with pytest.raises(ValueError, match="several private updates on one lot"):
        model.fit(lots_of(3, 4), verbose=0)
