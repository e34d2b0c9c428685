"""Hints for figures that look wrong."""

import warnings

import keras
import numpy as np
import pytest

import keras_dp_ext as dp


def train(x):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=1.0), loss="mse")
    # Every row is in every epoch, so that the bad one is.
    lots = dp.data.shuffled_batches(x, np.ones([len(x), 1]), batch_size=20)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    model.fit(lots, epochs=2, verbose=0, callbacks=[accountant])
    return model


def test_one_row_of_nan_is_explained_once():
    x = np.ones([40, 2], "float32")
    x[3] = np.nan
    with pytest.warns(UserWarning, match=r"rows.*hold NaN.*DroppedExamples") as caught:
        model = train(x)
    hints = [w for w in caught if "loss of this epoch is nan" in str(w.message)]
    assert len(hints) == 1
    assert all(np.isfinite(value).all() for value in model.get_weights())


def test_no_hint_for_finite_losses():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*loss of this epoch.*")
        train(np.ones([40, 2], "float32"))
