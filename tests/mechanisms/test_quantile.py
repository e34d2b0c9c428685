"""Adaptive clipping: the clip follows a quantile, and its release is paid for."""

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease
from keras_dp_ext.mechanisms import Quantile

ROWS = 24


def data(rows=ROWS):
    x = np.random.default_rng(0).normal(size=[rows, 3]).astype("float32")
    return x, x[:, :1].copy()


def fit(optimizer, x, y, epochs=1, lots=None, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **arguments)
    lots = lots or dp.data.poisson_batches(x, y, batch_size=6)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2)
    model.fit(lots, epochs=epochs, verbose=0, callbacks=[accountant])
    return model


def test_both_releases_together_cost_what_is_claimed():
    mechanism = Quantile(noise_multiplier=1.3, count_noise=0.9)
    assert mechanism.claim(100).proven == GaussianRelease(1.3)
    # As dp_accounting composes the two: sensitivity of the count is 1/2.
    of_count = mechanism.count_noise * mechanism.noise_multiplier / 0.5
    event = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.GaussianDpEvent(mechanism.sum_noise_multiplier),
            dp_accounting.GaussianDpEvent(of_count),
        ]
    )
    orders = [1.5, 2.0, 8.0, 32.0]
    both = dp_accounting.rdp.RdpAccountant(orders).compose(event)
    one = dp_accounting.rdp.RdpAccountant(orders).compose(
        dp_accounting.GaussianDpEvent(1.3)
    )
    np.testing.assert_allclose(both._rdp, one._rdp, rtol=1e-12)
    # Andrew et al., Theorem 1.
    assert mechanism.sum_noise_multiplier == pytest.approx(
        (1.3**-2 - of_count**-2) ** -0.5
    )


def test_a_row_adds_its_vote_and_padding_none():
    mechanism = Quantile(l2_norm_clip=2.0)
    mechanism.build([], lambda **arguments: tf.Variable(0.0))
    rows = tf.constant([[1.0, 0.0], [0.0, 5.0], [0.0, 0.0], [np.nan, 1.0], [2.0, 0.0]])
    total, votes = mechanism.bound(dp.gradients.MaterializedGradients([rows]))
    np.testing.assert_allclose(total, [3.0, 2.0])
    assert float(votes) == 0.5 - 0.5 + 0.5


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_clip_comes_to_the_quantile(jit_compile):
    x, y = data(400)
    lots = dp.data.poisson_batches(x, y, batch_size=400, steps_per_epoch=60)
    optimizer = dp.optimizers.QuantileSGD(
        learning_rate=1e-9, l2_norm_clip=30.0, noise_multiplier=0.5, target_quantile=0.7
    )
    model = fit(optimizer, x, y, lots=lots, jit_compile=jit_compile)
    kernel, bias = model.get_weights()
    error = 2 * (x @ kernel + bias - y)
    gradients = error * np.concatenate([x, np.ones([400, 1])], axis=1)
    norms = np.linalg.norm(gradients, axis=1)
    below = np.mean(norms <= optimizer.mechanism.current_clip)
    assert below == pytest.approx(0.7, abs=0.05)


def test_noise_follows_the_clip():
    mechanism = Quantile(l2_norm_clip=3.0, noise_multiplier=2.0)
    mechanism.build([], lambda **arguments: tf.Variable(np.float32(np.log(5))))
    noise, of_count = mechanism.draw_noise([[40_000], []], tf.constant([1, 2]), 0)
    expected = 15 * mechanism.sum_noise_multiplier
    assert np.std(noise) == pytest.approx(expected, rel=0.02)
    draws = [
        float(mechanism.draw_noise([[1], []], tf.constant([n, 2]), 0)[1])
        for n in range(300)
    ]
    assert np.std(draws) == pytest.approx(20.0, rel=0.2)
    assert of_count.shape == ()


@pytest.mark.parametrize("lots", [1, 2])
def test_the_joint_release_stays_within_its_claim_through_fit(lots):
    def train(x, y):
        optimizer = dp.optimizers.QuantileSGD(
            learning_rate=0.1, count_noise=0.6, gradient_accumulation_steps=lots
        )
        data = dp.data.poisson_batches(x, y, batch_size=6, accumulation_steps=lots)
        return fit(optimizer, x, y, lots=data)

    found = dp.audit.audit_fit(train, data(), examples=["huge", "tiny", "not a number"])
    assert found.within_claim, str(found)
    # Sum and count together use up what is claimed.
    assert found.shift == pytest.approx(1.0, rel=1e-3)


def test_the_audit_of_the_mechanism_holds_and_finds_a_count_that_is_not_paid_for():
    honest = Quantile(noise_multiplier=1.0, count_noise=0.6)
    audit = dp.audit.audit_mechanism(honest, runs=20_000, seed=1)
    assert audit.verdict == "holds"
    assert audit.epsilon > 0.8 * audit.proven_epsilon

    class Unpaid(Quantile):
        @property
        def sum_noise_multiplier(self):
            return self.noise_multiplier

    unpaid = Unpaid(noise_multiplier=1.0, count_noise=0.6)
    assert dp.audit.audit_mechanism(unpaid, runs=20_000, seed=1).verdict != "holds"


def test_the_clip_is_saved(tmp_path):
    x, y = data()
    model = fit(dp.optimizers.QuantileAdam(clip_learning_rate=0.5), x, y, epochs=3)
    clip = model.optimizer.mechanism.current_clip
    assert clip != 1.0
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.current_clip == pytest.approx(clip)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    loaded.fit(dp.data.poisson_batches(x, y, batch_size=6), verbose=0)
    assert int(loaded.optimizer.releases) == 16


@pytest.mark.parametrize(
    "arguments",
    [{"count_noise": 0.5}, {"target_quantile": 1.5}, {"clip_learning_rate": 0.0}],
)
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Quantile(**arguments)
