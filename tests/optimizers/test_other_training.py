"""Weights of another training bring what that training has spent."""

import warnings

import keras
import numpy as np

import keras_dp_ext as dp


def trained(noise_multiplier, epochs):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=noise_multiplier), loss="mse")
    x, y = np.ones((20, 4), "float32"), np.ones((20, 1), "float32")
    model.fit(
        dp.data.poisson_batches(x, y, batch_size=2),
        epochs=epochs,
        verbose=0,
        callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-5)],
    )
    return model


def spent(model):
    optimizer = model.optimizer
    return optimizer.ledger.epsilon(int(optimizer.releases.numpy()), 1e-5)


def test_loading_what_cost_more_in_fewer_releases_reports_both():
    costly, cheap = trained(0.3, epochs=1), trained(5.0, epochs=2)
    before = spent(cheap)
    cheap.optimizer.load_own_variables(saved_variables(costly.optimizer))
    assert spent(costly) > 10 * before
    assert spent(cheap) > spent(costly)


def saved_variables(optimizer):
    store = {}
    optimizer.save_own_variables(store)
    return store


def test_a_third_optimizer_is_warned_of_the_first_as_well():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    warned = []
    for epochs in (1, 2, 3):
        model.compile(dp.optimizers.DPSGD(), loss="mse")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x, y, batch_size=4, epochs=epochs, verbose=0)
        warned.append(
            [str(w.message) for w in caught if "another private" in str(w.message)]
        )
    assert [len(messages) for messages in warned] == [0, 1, 2]
    assert "with 2 releases" in warned[2][0]
    assert "with 4 releases" in warned[2][1]
