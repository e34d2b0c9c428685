"""Clipping by name is the bound of that name, under DP-SGD's noise."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease

NAMED = {
    "per-layer": (
        lambda: dp.optimizers.PerLayerSGD(
            l2_norm_clip=0.5, noise_multiplier=1.3, layer_sizes=(2,), learning_rate=0.1
        ),
        dp.bounding.PerLayerClip(0.5, (2,)),
    ),
    "automatic": (
        lambda: dp.optimizers.AutomaticSGD(
            l2_norm_clip=0.5, noise_multiplier=1.3, stability=0.1, learning_rate=0.1
        ),
        dp.bounding.Normalized(0.5, 0.1),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_it_trains_saves_and_costs_what_dp_sgd_costs(name, tmp_path):
    make, bound = NAMED[name]
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(make(), "mse")
    x = np.random.default_rng(0).normal(size=[40, 3]).astype("float32")
    model.fit(dp.data.poisson_batches(x, x[:, :1], batch_size=8), verbose=0)
    mechanism = model.optimizer.mechanism
    assert mechanism.bound_stage == bound
    assert mechanism.noise == dp.noise.Gaussian(1.3 * 0.5)
    assert mechanism.noise_deviation() == 1.3 * 0.5
    assert model.optimizer.privacy_claim().proven == GaussianRelease(1.3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.mechanism.get_config() == mechanism.get_config()
    spent = [one.optimizer.ledger.epsilon(delta=1e-2) for one in (loaded, model)]
    assert spent[0] == spent[1]


def test_a_budget_is_calibrated():
    optimizer = dp.optimizers.PerLayerAdam.for_budget(
        epsilon=3.0, delta=1e-5, num_examples=60_000, batch_size=256, epochs=60
    )
    expected = dp.optimizers.DPAdam.for_budget(
        epsilon=3.0, delta=1e-5, num_examples=60_000, batch_size=256, epochs=60
    )
    multiplier = optimizer.mechanism.noise_multiplier
    assert multiplier == pytest.approx(expected.mechanism.noise_multiplier, rel=1e-3)
