"""TensorFlow Privacy's other names: its signatures, and its figures where right."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_dp_ext import tf_privacy

needs_tf_privacy = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_privacy") is None,
    reason="tensorflow-privacy 0.9.0 needs Python < 3.12",
)

STATEMENT = {
    "number_of_examples": 60_000,
    "batch_size": 256,
    "num_epochs": 60,
    "noise_multiplier": 1.1,
    "delta": 1e-5,
    "used_microbatching": False,
}
NOISE = {
    "n": 60_000,
    "batch_size": 256,
    "target_epsilon": 3.0,
    "epochs": 60,
    "delta": 1e-5,
    "noise_lbd": 0.1,
}
PRIVACY = {
    "n": 60_000,
    "batch_size": 256,
    "noise_multiplier": 1.1,
    "epochs": 60,
    "delta": 1e-5,
}

# TensorFlow Privacy's own functions need no legacy Keras, only its module.
THEIRS = """
import inspect, json, sys
sys.skip_tf_privacy_import = True
from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as privacy
from tensorflow_privacy.privacy.analysis import compute_noise_from_budget_lib as noise
statement, sigma, plain = json.loads(sys.argv[1])
results = {
    "statement": privacy.compute_dp_sgd_privacy_statement(**statement),
    "users": privacy.compute_dp_sgd_privacy_statement(
        **{**statement, "max_examples_per_user": 3, "noise_multiplier": 20.0}),
    "noise": noise.compute_noise(**sigma),
    "privacy": privacy.compute_dp_sgd_privacy(**plain),
    "parameters": [list(inspect.signature(f).parameters) for f in (
        privacy.compute_dp_sgd_privacy_statement, noise.compute_noise,
        privacy.compute_dp_sgd_privacy)],
}
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def theirs():
    done = subprocess.run(
        [sys.executable, "-c", THEIRS, json.dumps([STATEMENT, NOISE, PRIVACY])],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.split("RESULTS")[1])


def figures(statement):
    return [float(f) for f in re.findall(r"^    .*?([\d.]+)$", statement, re.MULTILINE)]


@needs_tf_privacy
def test_figures_are_those_of_tf_privacy(theirs):
    ours = tf_privacy.compute_dp_sgd_privacy_statement(**STATEMENT)
    assert len(figures(ours)) == 2
    assert figures(ours) == pytest.approx(figures(theirs["statement"]), rel=2e-3)
    with pytest.warns(UserWarning, match="assumes Poisson sampling"):
        epsilon, order = tf_privacy.compute_dp_sgd_privacy(**PRIVACY)
    assert epsilon == pytest.approx(theirs["privacy"][0], rel=2e-3)
    assert order == pytest.approx(theirs["privacy"][1], rel=0.1)
    assert tf_privacy.compute_noise(**NOISE) == pytest.approx(theirs["noise"], rel=2e-3)


@needs_tf_privacy
def test_user_level_figures_are_those_of_tf_privacy(theirs):
    ours = tf_privacy.compute_dp_sgd_privacy_statement(
        **{**STATEMENT, "noise_multiplier": 20.0}, max_examples_per_user=3
    )
    assert len(figures(ours)) == 4
    # Ours tries higher RDP orders, which matters where epsilon is small.
    assert figures(ours) == pytest.approx(figures(theirs["users"]), rel=0.03)
    for own, other in zip(figures(ours), figures(theirs["users"]), strict=True):
        assert own <= other


@needs_tf_privacy
def test_signatures_are_those_of_tf_privacy(theirs):
    ours = [
        tf_privacy.compute_dp_sgd_privacy_statement,
        tf_privacy.compute_noise,
        tf_privacy.compute_dp_sgd_privacy,
    ]
    assert [list(inspect.signature(f).parameters) for f in ours] == theirs["parameters"]


def test_more_noise_than_needed_is_not_turned_into_none():
    assert tf_privacy.compute_noise(**{**NOISE, "noise_lbd": 50.0}) == 50.0


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_vectorised_optimizers(name):
    cls = getattr(tf_privacy, f"VectorizedDPKeras{name}Optimizer")
    assert list(inspect.signature(cls).parameters)[:4] == [
        "l2_norm_clip",
        "noise_multiplier",
        "num_microbatches",
        "unconnected_gradients_to_zero",
    ]
    optimizer = cls(1.0, 0.5, 4, False, 0.25)
    assert float(optimizer.learning_rate) == 0.25
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is cls and again.num_microbatches == 4
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, loss=keras.losses.MeanSquaredError(reduction=None))
    model.fit(np.ones([16, 3]), np.ones([16, 1]), batch_size=8, verbose=0)
    assert int(optimizer.releases) == 2


@pytest.mark.parametrize("name", ["DPSequential", "DPModel"])
def test_model_classes_say_what_to_write(name):
    with pytest.raises(NotImplementedError, match=r"keras\.\w+.*l2_norm_clip=1.5"):
        getattr(tf_privacy, name)(l2_norm_clip=1.5, noise_multiplier=1.1)


def test_legacy_keras_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import keras_dp_ext as dp; dp.optimizers.DPSGD"],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
    )
    assert done.returncode == 1
    assert "Unset it" in done.stderr.splitlines()[-1]
