"""Epsilon inside of an epoch: never less than what is spent, never falling."""

import math
import re

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.callbacks.live_epsilon import LiveEpsilon


class Batches(keras.callbacks.Callback):
    """What the progress bar would show, and what is true."""

    def __init__(self, accountant):
        super().__init__()
        self.accountant, self.shown, self.true = accountant, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.shown.append(logs["epsilon"])
        self.true.append(self.accountant.epsilon)


def train(accumulation=1, steps_per_execution=1, epochs=2, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(
        dp.optimizers.DPSGD(
            noise_multiplier=2.0, gradient_accumulation_steps=accumulation
        ),
        loss="mse",
        steps_per_execution=steps_per_execution,
    )
    x, y = np.ones([120, 3], "float32"), np.ones([120, 1], "float32")
    lots = dp.data.poisson_batches(x, y, batch_size=6, accumulation_steps=accumulation)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-4, **arguments)
    batches = Batches(accountant)
    history = model.fit(lots, epochs=epochs, verbose=0, callbacks=[batches, accountant])
    return batches, history.history["epsilon"]


@pytest.mark.parametrize(
    "arguments", [{}, {"accumulation": 2}, {"steps_per_execution": 4}]
)
def test_shown_for_every_batch(arguments):
    batches, epochs = train(**arguments)
    assert len(batches.shown) == 40 * arguments.get("accumulation", 1) / arguments.get(
        "steps_per_execution", 1
    )
    assert all(s >= t for s, t in zip(batches.shown, batches.true, strict=True))
    assert batches.shown == sorted(batches.shown)
    # The last batch of an epoch shows what its end does.
    half = len(batches.shown) // 2
    assert [batches.shown[half - 1], batches.shown[-1]] == pytest.approx(epochs)


def test_a_target_is_not_exceeded_by_what_is_shown():
    batches, epochs = train(epochs=30, target_epsilon=1.0)
    assert max(batches.shown) <= 1.0
    assert batches.shown[-1] == pytest.approx(epochs[-1])


def test_the_progress_bar_shows_it_and_no_average(capsys):
    """An average over the epoch, as older versions of Keras show it, is too little."""
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
    lots = dp.data.poisson_batches(np.ones([60, 3]), np.ones([60, 1]), batch_size=6)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-4)
    batches = Batches(accountant)
    model.fit(lots, callbacks=[batches, accountant], verbose=1)
    bars = re.findall(r" epsilon: ([\d.]+)", capsys.readouterr().out)
    assert len(bars) > 1
    assert set(bars) <= {f"{epsilon:.4f}" for epsilon in batches.shown}


@pytest.mark.parametrize("steps", [None, 1, 7, 500, 12_345])
def test_few_points_are_computed(steps):
    computed = []
    live = LiveEpsilon(
        lambda releases: computed.append(releases) or math.sqrt(releases), 30, 1, steps
    )
    shown = [live.after(batch) for batch in range(steps or 40)]
    assert len(computed) <= 50
    assert all(s >= math.sqrt(31 + i) for i, s in enumerate(shown))
    assert steps is None or shown[-1] == math.sqrt(30 + steps)
