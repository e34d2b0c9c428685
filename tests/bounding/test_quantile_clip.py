"""A clip that moves is a bound like any other: its count is a coordinate more."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import CorrelatedRelease, GaussianRelease
from keras_dp_ext.bounding import QuantileClip

NOISES = {
    "gaussian": dp.noise.Gaussian(2.0),
    "banded": dp.noise.Banded(bands=2, steps=6, scale=2.0),
    "tree": dp.noise.TreeAggregation(scale=2.0),
}


def data(rows=22):
    x = np.random.default_rng(0).normal(size=[rows, 3]).astype("float32")
    return x, x[:, :1].copy()


def fit(bound, noise, x, y, epochs=2, steps=None, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=bound,
        noise=noise,
        **{"learning_rate": 0.1, **arguments},
    )
    model.compile(optimizer, "mse")
    lots = dp.data.poisson_batches(x, y, batch_size=len(x) // 3, steps_per_epoch=steps)
    if noise.name != "gaussian":
        lots = dp.data.fixed_order_batches(x, y, batch_size=8)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2)
    model.fit(lots, epochs=epochs, verbose=0, callbacks=[accountant])
    return model


def built(bound):
    mechanism = dp.mechanisms.Composed(bound, dp.noise.Gaussian(1.0))
    mechanism.build([], lambda **arguments: tf.Variable(0.0))
    return mechanism


def test_a_row_with_its_vote_is_as_long_as_the_sensitivity_and_not_longer():
    bound = QuantileClip(2.0, count_weight=0.8)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=[200, 5]) * rng.lognormal(sigma=4, size=[200, 1])
    rows = [*rows, np.zeros(5), np.full(5, np.nan), np.full(5, np.inf), 1e30 * rows[0]]
    lengths = []
    for row in rows:
        gradients = dp.gradients.MaterializedGradients(
            [tf.constant(row[np.newaxis], tf.float32)]
        )
        total, vote = built(bound).bound(gradients)
        lengths.append(np.hypot(np.linalg.norm(total), float(vote)))
    norm = bound.sensitivity(5).norm
    assert norm == pytest.approx(np.hypot(1, 0.4))
    assert 0.999 * norm < max(lengths) <= norm * (1 + 1e-6)
    # Padding, and rows that are no numbers, add nothing, not even a vote.
    assert lengths[200] == lengths[201] == lengths[202] == 0.0


@pytest.mark.parametrize("name", NOISES)
def test_an_example_moves_no_release_further_than_claimed(name):
    bound = QuantileClip(0.5, count_weight=1.5)

    def train(x, y):
        return fit(bound, NOISES[name], x, y)

    found = dp.audit.audit_fit(train, data(), examples=["huge", "not a number"])
    assert found.within_claim, str(found)
    assert 0.99 < found.shift <= 1.001


def test_the_audit_finds_a_count_that_is_not_paid_for(monkeypatch):
    monkeypatch.setattr(
        QuantileClip,
        "sensitivity",
        lambda self, num_parameters: dp.bounding.L2Clip(1.0).sensitivity(1),
    )

    def train(x, y):
        return fit(QuantileClip(0.5, count_weight=1.5), NOISES["gaussian"], x, y)

    found = dp.audit.audit_fit(train, data(), examples=["huge"])
    assert found.shift == pytest.approx(np.hypot(1, 0.75), rel=1e-3)
    assert not found.within_claim


def test_what_it_costs():
    mechanism = dp.mechanisms.Composed(QuantileClip(9.0), dp.noise.Gaussian(2.0))
    event = mechanism.claim(7).proven
    assert event == GaussianRelease(2.0 / np.hypot(1, 0.05))
    tree = dp.mechanisms.Composed(QuantileClip(9.0), NOISES["tree"]).claim(7).proven
    assert isinstance(tree, CorrelatedRelease)
    assert tree.noise_multiplier == event.noise_multiplier
    # What changes instead of joining moves twice as far, with its vote.
    assert mechanism.claim(7, 2).proven.noise_multiplier == pytest.approx(
        event.noise_multiplier / 2
    )
    for noise in ("laplace", "student-t"):
        with pytest.raises(ValueError, match="No bound on epsilon is known"):
            dp.mechanisms.Composed(QuantileClip(), noise)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_clip_comes_to_the_quantile_and_is_saved(tmp_path, jit_compile):
    x, y = data(300)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=QuantileClip(30.0, target_quantile=0.7),
        noise=dp.noise.Gaussian(0.3),
        learning_rate=1e-9,
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    lots = dp.data.poisson_batches(x, y, batch_size=300, steps_per_epoch=50)
    model.fit(lots, verbose=0)
    kernel, bias = model.get_weights()
    error = 2 * (x @ kernel + bias - y)
    gradients = error * np.concatenate([x, np.ones([300, 1])], axis=1)
    clip = optimizer.mechanism.current_clip
    assert np.mean(np.linalg.norm(gradients, axis=1) <= clip) == pytest.approx(
        0.7, abs=0.06
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.current_clip == pytest.approx(clip)
    assert loaded.optimizer.mechanism.bound_stage == optimizer.mechanism.bound_stage


def test_with_little_noise_an_update_is_the_clipped_mean():
    """The units of the clip are gone before the update."""
    x, y = data(8)
    start = {}

    class Start(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            start["weights"] = self.model.get_weights()

    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=QuantileClip(0.3),
        noise=dp.noise.Gaussian(1e-9),
        learning_rate=1.0,
        expected_batch_size=1,
    )
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[Start()])
    kernel, bias = start["weights"]
    error = 2 * (x @ kernel + bias - y)
    rows = error * np.concatenate([x, np.ones([8, 1])], axis=1)
    rows *= np.minimum(1.0, 0.3 / np.linalg.norm(rows, axis=1, keepdims=True))
    moved = np.concatenate([kernel.ravel(), bias]) - np.concatenate(
        [model.get_weights()[0].ravel(), model.get_weights()[1]]
    )
    np.testing.assert_allclose(moved, rows.sum(axis=0), rtol=1e-4, atol=1e-6)
