"""The worked example of docs/adding_a_mechanism.md does what the page says."""

import pathlib
import re

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "adding_a_mechanism.md"


@pytest.fixture(scope="module")
def example():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 60
    namespace = {}
    exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace


def test_it_trains_and_reports_its_epsilon(example):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5)).astype("float32")
    y = rng.integers(0, 2, 64)
    model = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(1, activation="sigmoid")]
    )
    optimizer = example["LaplaceAdam"](learning_rate=0.01, l1_norm_clip=2.0, noise=30.0)
    model.compile(optimizer, loss="binary_crossentropy")
    history = model.fit(
        dp.data.poisson_batches(x, y, batch_size=16),
        epochs=2,
        verbose=0,
        callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-3)],
    )
    first, second = history.history["epsilon"]
    # Pure epsilon of one release is 1 / 30; basic composition bounds all of them.
    assert 0 < first < second <= 8 / 30 + 1e-9
    assert optimizer.get_config()["l1_norm_clip"] == 2.0


def test_its_bound_is_the_l1_norm(example):
    mechanism = example["LaplaceSGD"](l1_norm_clip=0.5)
    rows = np.random.default_rng(0).normal(size=(1, 7)).astype("float32")
    gradients = dp.gradients.MaterializedGradients([rows])
    (total,) = mechanism.bound(gradients)
    assert np.sum(np.abs(total)) == pytest.approx(0.5, rel=1e-5)
