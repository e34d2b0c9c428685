"""Wrong input gets one line and a status, never a traceback."""

import os
import subprocess
import sys

import numpy as np
import pytest


def write(directory, **changes) -> str:
    arrays = {
        "x_train": np.zeros([20, 4], np.float32),
        "y_train": np.arange(20) % 2,
        "x_test": np.zeros([4, 4], np.float32),
        "y_test": np.arange(4) % 2,
    }
    np.savez(directory / "own.npz", **{**arrays, **changes})
    return str(directory / "own.npz")


def assert_one_line(keras_dp, status: int, message: str) -> None:
    assert status == 2
    lines = keras_dp.stderr.strip().splitlines()
    assert len(lines) == 1, keras_dp.stderr
    assert lines[0].startswith("keras-dp ") and message in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "minst"], "must be one of digits, mnist"),
        (["--dataset", "absent.npz"], "not found"),
        (["--dataset", "adult", "--data-dir", "absent"], "must be a directory"),
        (["--model", "resnet"], "must be one of tanh_cnn"),
        (["--model", "absent:function"], "can be imported"),
        (["--model", "cifar_cnn:f"], "can be imported"),
        (["--mechanism", "dpsdg"], "must be one of"),
        (["--noise", "cauchy"], "--mechanism encoding"),
        (["--mechanism", "encoding", "--noise", "white"], "invalid choice"),
        (["--optimizer", "Sgd2"], "keras.optimizers"),
        (["--optimizer", "Optimizer"], "keras.optimizers"),
        (["--pca-noise-multiplier", "4"], "PrivatePCA"),
        (["--batch-size", "5000"], "at most the number of examples"),
        (["--batch-size", "0"], "at least 1"),
        (["--epochs", "x"], "must be a number"),
        (["--epochs", "-1"], "must be an integer"),
        (["--target-epsilon", "-1"], "must be positive"),
        (["--target-epsilon", "nan"], "must be a number"),
        (["--delta", "0"], "between 0 and 1"),
        (["--delta", "2"], "between 0 and 1"),
        (["--learning-rate", "inf"], "must be positive and finite"),
        (["--noise-multiplier", "1", "--target-epsilon", "1"], "not both"),
        (["--noise-multiplier", "-1"], "noise_multiplier"),
        (["--set", "novalue"], "KEY=VALUE"),
        (["--set", "absent=1"], "absent"),
        (["--resume"], "there is none"),
        (["--resume", "--overwrite"], "not both"),
    ],
)
def test_wrong_arguments(keras_dp, tmp_path, arguments, message):
    status = keras_dp("train", "--output-dir", tmp_path / "out", *arguments)
    assert_one_line(keras_dp, status, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros([0, 4]), "y_train": np.zeros([0], int)}, "at least one"),
        ({"x_train": np.full([20, 4], np.nan)}, "NaN or infinity"),
        ({"x_test": np.full([4, 4], np.inf)}, "NaN or infinity"),
        ({"y_test": np.array([0, 1, 2, 3])}, "labels from 0 to 1"),
        ({"y_train": np.arange(20) - 1}, "labels from 0"),
        ({"y_train": np.array(["a", "b"] * 10)}, "one integer label"),
        ({"y_train": np.arange(20) * 10**9}, "labels 0, 1, 2"),
    ],
)
def test_broken_data(keras_dp, tmp_path, changes, message):
    path = write(tmp_path, **changes)
    status = keras_dp("train", "--dataset", path, "--output-dir", tmp_path / "out")
    assert_one_line(keras_dp, status, message)


def test_models_that_do_not_fit_the_data(keras_dp, tmp_path):
    path = write(tmp_path)
    status = keras_dp(
        *("train", "--dataset", path, "--batch-size", 5, "--model", "tanh_cnn"),
        *("--output-dir", tmp_path / "out"),
    )
    assert_one_line(keras_dp, status, "cannot be built for data set `own`")


@pytest.mark.parametrize("command", ["train", "compare"])
def test_an_output_directory_that_is_a_file(keras_dp, tmp_path, command):
    (tmp_path / "file").write_text("")
    status = keras_dp(command, "--output-dir", tmp_path / "file" / "out")
    assert_one_line(keras_dp, status, "directory that can be written")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_directory_that_cannot_be_written(keras_dp, tmp_path):
    tmp_path.chmod(0o500)
    status = keras_dp("train", "--output-dir", tmp_path / "out")
    assert_one_line(keras_dp, status, "directory that can be written")


def test_an_earlier_training_is_not_overwritten_by_accident(keras_dp, tmp_path):
    (tmp_path / "model.keras").write_text("precious")
    status = keras_dp("train", "--output-dir", tmp_path)
    assert_one_line(keras_dp, status, "holds an earlier training")
    assert (tmp_path / "model.keras").read_text() == "precious"


@pytest.mark.parametrize("command", ["train --overwrite", "compare"])
def test_a_typing_error_does_not_cost_earlier_results(keras_dp, tmp_path, command):
    precious = ["model.keras", "settings.json", "history.csv", "runs.csv"]
    for name in precious:
        (tmp_path / name).write_text("precious")
    status = keras_dp(*command.split(), "--output-dir", tmp_path, "--dataset", "minst")
    assert_one_line(keras_dp, status, "must be one of digits, mnist")
    assert all((tmp_path / name).read_text() == "precious" for name in precious)


def test_errors_are_one_line_for_the_user_too(tmp_path):
    """In a process of its own, where TensorFlow has its say."""
    done = subprocess.run(
        [sys.executable, "-m", "keras_dp_ext.cli", "train", "--dataset", "minst"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("nested", [False, True])
def test_a_layer_that_would_learn_statistics_is_refused(
    keras_dp, tmp_path, monkeypatch, nested
):
    layer = "keras.layers.Normalization()"
    (tmp_path / f"leaky{nested}.py").write_text(
        "import keras\n"
        "def network(data):\n"
        "    return keras.Sequential([keras.Input(data.x_train.shape[1:]),\n"
        f"        {f'keras.Sequential([{layer}])' if nested else layer},\n"
        "        keras.layers.Flatten(), keras.layers.Dense(data.num_classes)])\n"
    )
    monkeypatch.chdir(tmp_path)
    status = keras_dp(
        "train", "--model", f"leaky{nested}:network", "--output-dir", "out"
    )
    assert_one_line(keras_dp, status, "mean and variance of the data")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanisms", "dpsgd,magic"], "Received: magic"),
        (["--seeds", "0"], "at least 1"),
        (["--dataset", "minst"], "must be one of digits, mnist"),
    ],
)
def test_wrong_comparisons(keras_dp, tmp_path, arguments, message):
    status = keras_dp("compare", "--output-dir", tmp_path, *arguments)
    assert_one_line(keras_dp, status, message)
