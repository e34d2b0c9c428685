"""A seed of the sampler makes lots that others can know, or draw again."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

X = np.random.default_rng(0).normal(size=[60, 3]).astype("float32")
AMPLIFIED = {
    "poisson": dp.data.poisson_batches,
    "balls in bins": dp.data.balls_in_bins_batches,
    "cyclic": lambda x, y, n, seed: dp.data.cyclic_poisson_batches(
        x, y, n, cycle=3, seed=seed
    ),
    "with replacement": dp.data.with_replacement_batches,
}


def trained(lots, *callbacks):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    model.fit(lots, verbose=0, callbacks=callbacks)
    return model


@pytest.mark.parametrize("sampler", AMPLIFIED)
def test_what_sampling_hides_rests_on_a_secret_seed(sampler):
    model = trained(AMPLIFIED[sampler](X, X[:, :1], 10, seed=7))
    (assumed,) = model.optimizer.ledger.assumed
    assert "`seed` of the sampler is secret" in assumed
    assert not trained(
        AMPLIFIED[sampler](X, X[:, :1], 10, seed=None)
    ).optimizer.ledger.assumed


def test_without_amplification_nothing_rests_on_it():
    lots = dp.data.shuffled_batches(X, X[:, :1], 10, seed=7)
    assert not trained(lots).optimizer.ledger.assumed


def test_the_statement_says_so():
    accountant = dp.PrivacyAccountant(delta=1e-3)
    trained(dp.data.poisson_batches(X, X[:, :1], 10, seed=7), accountant)
    text = " ".join(accountant.statement().split())
    assert "Assumed, not verified: the `seed` of the sampler is secret" in text
