"""Configuration and state come back with the model."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting import Poisson

X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(12, 1)).astype("float32")

OPTIMIZERS = [
    name
    for name in dp.optimizers.__all__
    if hasattr(getattr(dp.optimizers, name), "mechanism_class")
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_config_round_trips(name):
    optimizer = getattr(dp.optimizers, name)(
        learning_rate=0.05,
        num_microbatches=3,
        gradient_accumulation_steps=2,
        expected_batch_size=12,
    )
    config = optimizer.get_config()
    assert type(optimizer).from_config(config).get_config() == config
    serialized = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.get(serialized)
    assert type(again) is type(optimizer)
    assert again.get_config() == config


def test_a_noise_seed_round_trips_with_a_caveat_in_warning_ledger_and_statement():
    optimizer = dp.optimizers.DPSGD(noise_multiplier=1.0, noise_seed=7)
    assert type(optimizer).from_config(optimizer.get_config()).noise_seed == 7
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    with pytest.warns(UserWarning, match="noise is reproducible") as caught:
        model.fit(X, Y, batch_size=6, epochs=2, verbose=0)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(type(optimizer).from_config(optimizer.get_config()), loss="mse")
    with pytest.warns(UserWarning, match="noise is reproducible") as accounted:
        model.fit(X, Y, batch_size=6, epochs=2, verbose=0, callbacks=[accountant])
    for warnings in (caught, accounted):
        assert sum("noise is reproducible" in str(w.message) for w in warnings) == 1
    assert "no privacy at all against" in " ".join(accountant.statement().split())


def test_without_a_noise_seed_there_is_nothing_to_warn_of(recwarn):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(), loss="mse")
    model.fit(X, Y, batch_size=6, verbose=0)
    assert model.optimizer.privacy_claim().caveat is None
    assert not [w for w in recwarn if "reproducible" in str(w.message)]


def test_a_saved_model_comes_back_with_its_budget(tmp_path):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPAdam(noise_multiplier=0.7), loss="mse")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.declare_sampling(Poisson(0.5))
    model.fit(X, Y, batch_size=6, epochs=3, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.releases.numpy()) == 6
    assert again.optimizer.ledger.to_json() == model.optimizer.ledger.to_json()
    assert again.optimizer.mechanism.noise_multiplier == 0.7
    again.fit(X, Y, batch_size=6, verbose=0)
    assert int(again.optimizer.releases.numpy()) == 8


@pytest.mark.parametrize("trained", ["before", "after"])
def test_a_file_of_the_old_format_leaves_the_optimizer_in_later_ones(tmp_path, trained):
    """Keras takes the optimizer out of what a model was compiled with, for `.h5`."""
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPAdam(noise_multiplier=0.7), loss="mse")
    if trained == "before":
        model.fit(X, Y, batch_size=6, verbose=0)
    model.save(tmp_path / "model.h5")
    if trained == "after":
        model.fit(X, Y, batch_size=6, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.optimizer, dp.optimizers.DPAdam)
    assert int(again.optimizer.releases) == 2


def test_loading_older_weights_does_not_give_the_budget_back(tmp_path):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(), loss="mse")
    model.fit(X, Y, batch_size=6, verbose=0)
    model.save_weights(tmp_path / "early.weights.h5")
    model.fit(X, Y, batch_size=6, epochs=2, verbose=0)
    model.load_weights(tmp_path / "early.weights.h5")
    assert int(model.optimizer.releases.numpy()) == 6
