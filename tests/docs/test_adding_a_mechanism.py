"""The worked example of docs/adding_a_mechanism.md does what the page says."""

import json
import pathlib
import re
import sys

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.cli.main import main

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "adding_a_mechanism.md"


TEXT = PAGE.read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = re.findall(r"^keras-dp (.*)$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def example():
    assert len(CODE.splitlines()) < 60
    namespace = {}
    exec(compile(CODE, str(PAGE), "exec"), namespace)
    return namespace


def test_it_trains_and_reports_its_epsilon(example):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5)).astype("float32")
    y = rng.integers(0, 2, 64)
    model = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(1, activation="sigmoid")]
    )
    optimizer = example["LaplaceAdam"](
        learning_rate=0.01, l1_norm_clip=2.0, noise_multiplier=30.0
    )
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
    mechanism = example["L1Laplace"](l1_norm_clip=0.5)
    rows = np.random.default_rng(0).normal(size=(1, 7)).astype("float32")
    gradients = dp.gradients.MaterializedGradients([rows])
    (total,) = mechanism.bound(gradients)
    assert np.sum(np.abs(total)) == pytest.approx(0.5, rel=1e-5)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """The example as a file in the current directory."""
    (tmp_path / "my_mechanism.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_mechanism", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_commands_take_it_by_name(own_module, capsys, command):
    small = {
        "audit": ["--runs", "2000", "--parameters", "8"],
        "train": ["--epochs", "1", "--quiet"],
        "compare": ["--epochs", "1", "--seeds", "1", "--quiet"],
    }
    words = command.split()
    assert main([*words, *small.get(words[0], []), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    own = "my_mechanism:L1Laplace"
    if words[0] == "audit":
        (entry,) = result
        # Pure epsilon: at most 1 / noise multiplier for one release.
        assert entry["mechanism"] == own and entry["proven_epsilon"] < 1.01
        assert entry["verdict"] != "REFUTED"
    elif words[0] == "compare":
        assert set(result["mechanisms"]) == {"dpsgd", own}
        assert result["mechanisms"][own]["epsilon"] <= 8
    else:
        assert result["mechanism"] == own and 0 < result["epsilon"] <= 8


def test_the_training_of_an_own_mechanism_can_be_resumed(own_module, capsys):
    command = ["train", "--mechanism", "my_mechanism:L1Laplace", "--quiet", "--json"]
    noise = ["--noise-multiplier", "30"]
    assert main([*command, *noise, "--epochs", "1"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*command, *noise, "--epochs", "2", "--resume"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["releases"] == 2 * first["releases"]
    assert second["epsilon"] > first["epsilon"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanism", "my_mechanism:Nothing"], "can be imported"),
        (["--mechanism", "nowhere:L1Laplace"], "can be imported"),
        (["--mechanism", "my_mechanism:LaplaceAdam"], "subclass"),
        (["--mechanism", "my_mechanism:L1Laplace", "--l2-norm-clip", "1"], "not apply"),
        (["--mechanism", "my_mechanism:L1Laplace", "--set", "clip=1"], "l1_norm_clip"),
        (["--mechanism", "laplace"], "module:Class"),
    ],
)
def test_wrong_names_and_arguments_are_told_in_one_line(
    own_module, capsys, arguments, message
):
    assert main(["train", *arguments, "--epochs", "1"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error and "Traceback" not in error


def test_a_mechanism_without_noise_multiplier_says_what_is_missing():
    class Silent(dp.mechanisms.DPSGD):
        def __init__(self, loudness=1.0):
            super().__init__()

    with pytest.raises(ValueError, match="noise_multiplier"):
        Silent.arguments_at(1.0)
