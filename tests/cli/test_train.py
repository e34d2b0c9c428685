"""`keras-dp train`: the files it leaves, the epsilon it earns, how it goes on."""

import csv
import json
import math

import dp_accounting
import keras
import numpy as np
import pytest

from keras_dp_ext.accounting import Ledger
from keras_dp_ext.cli import _training_files
from keras_dp_ext.data import load
from keras_dp_ext.presets import RECIPES, Recipe

QUICK = ("train", "--model", "linear", "--batch-size", 64)


def sampled_gaussian_epsilon(sigma, rate, steps, delta, pca_sigma=None) -> float:
    """An independent account, by Google's library alone."""
    accountant = dp_accounting.rdp.RdpAccountant()
    event = dp_accounting.GaussianDpEvent(sigma)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, event), steps)
    if pca_sigma is not None:
        accountant.compose(dp_accounting.GaussianDpEvent(pca_sigma))
    return accountant.get_epsilon(delta)


def history_of(directory) -> list[dict[str, str]]:
    with open(directory / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_one_command_leaves_a_model_and_its_privacy(keras_dp, tmp_path):
    summary = keras_dp.json(
        *QUICK, "--epochs", 3, "--target-epsilon", 2, "--output-dir", tmp_path
    )
    steps = 3 * round(1438 / 64)
    assert summary["releases"] == steps and summary["delta"] == 1e-4
    expected = sampled_gaussian_epsilon(
        summary["noise_multiplier"], 64 / 1438, steps, 1e-4
    )
    assert summary["epsilon"] == pytest.approx(expected, rel=0.01)
    assert 1.95 < summary["epsilon"] <= 2.0

    model = keras.saving.load_model(tmp_path / "model.keras")
    digits = load("digits")
    guesses = model.predict(digits.x_test, verbose=0).argmax(axis=1)
    assert np.mean(guesses == digits.y_test) == pytest.approx(summary["test_accuracy"])

    record = json.loads((tmp_path / "privacy.json").read_text())
    ledger = Ledger.from_json(json.dumps(record["ledger"]))
    assert ledger.epsilon(steps, 1e-4) == summary["epsilon"] == record["epsilon"]
    assert "differentially private" in record["statement"].replace("\n", " ")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    rows = history_of(tmp_path)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert float(rows[-1]["epsilon"]) == summary["epsilon"]


def test_a_recipe_chooses_the_accountant_and_the_settings_keep_it(
    keras_dp, tmp_path, monkeypatch
):
    tight = Recipe("linear", 1.0, 2, 256, accountant="pld")
    monkeypatch.setitem(RECIPES, "digits", (tight,))
    arguments = ("train", "--noise-multiplier", 2, "--output-dir", tmp_path)
    first = keras_dp.json(*arguments)
    event = dp_accounting.GaussianDpEvent(2.0)
    expected = dp_accounting.pld.PLDAccountant()
    expected.compose(dp_accounting.PoissonSampledDpEvent(256 / 1438, event), 12)
    assert first["releases"] == 12
    assert first["epsilon"] == pytest.approx(expected.get_epsilon(1e-4), rel=0.01)
    # Another version may have another default: a resumed training keeps its own.
    kept = json.loads((tmp_path / "settings.json").read_text())
    assert (kept["model"], kept["accountant"]) == ("linear", "pld")


def test_nothing_that_is_not_private_is_written(keras_dp, tmp_path):
    """Loss and accuracy of the training data are for the operator's eyes only."""
    keras_dp.json(*QUICK, "--epochs", 1, "--output-dir", tmp_path)
    assert set(history_of(tmp_path)[0]) == set(_training_files.COLUMNS)
    assert not {"loss", "accuracy"} & set(_training_files.COLUMNS)


def test_a_resumed_training_pays_for_both_parts(keras_dp, tmp_path):
    arguments = (*QUICK, "--noise-multiplier", 2, "--output-dir", tmp_path)
    first = keras_dp.json(*arguments, "--epochs", 2)
    second = keras_dp.json("train", "--output-dir", tmp_path, "--resume", "--epochs", 5)
    steps = round(1438 / 64)
    assert (first["releases"], second["releases"]) == (2 * steps, 5 * steps)
    assert second["epsilon"] == pytest.approx(
        sampled_gaussian_epsilon(2.0, 64 / 1438, 5 * steps, 1e-4), rel=0.01
    )
    assert [row["epoch"] for row in history_of(tmp_path)] == list("12345")


def test_a_spent_budget_cannot_be_resumed(keras_dp, tmp_path):
    arguments = (*QUICK, "--target-epsilon", 1, "--output-dir", tmp_path)
    keras_dp.json(*arguments, "--epochs", 1)
    status = keras_dp("train", "--output-dir", tmp_path, "--resume", "--epochs", 2)
    assert status == 2 and "target_epsilon" in keras_dp.stderr
    # What was refused was not done: there is nothing left to do.
    again = keras_dp.json("train", "--output-dir", tmp_path, "--resume")
    assert again["epochs"] == 1 and again["epsilon"] <= 1


def test_no_accuracy_is_recorded_of_a_model_that_was_not_saved(
    keras_dp, tmp_path, monkeypatch
):
    """A resumed training would not know of the releases behind it."""

    def fail(self, epoch, logs=None):
        raise OSError("disk full")

    monkeypatch.setattr(_training_files.ModelWriter, "on_epoch_end", fail)
    assert keras_dp(*QUICK, "--epochs", 1, "--output-dir", tmp_path, "--quiet") == 2
    assert "disk full" in keras_dp.stderr
    assert not (tmp_path / "history.csv").exists()


def test_without_noise_epsilon_is_infinite_and_said_to_be(keras_dp, tmp_path):
    arguments = ("--epochs", 1, "--output-dir", tmp_path, "--quiet")
    assert keras_dp(*QUICK, "--noise-multiplier", 0, *arguments) == 0, keras_dp.stderr
    assert "infinite (no guarantee)" in keras_dp.stdout
    assert (tmp_path / "training.png").exists()


def test_settings_do_not_change_when_resuming(keras_dp, tmp_path):
    keras_dp.json(*QUICK, "--epochs", 1, "--output-dir", tmp_path)
    status = keras_dp(
        "train", "--output-dir", tmp_path, "--resume", "--target-epsilon", 50
    )
    assert status == 2 and "`--target-epsilon` must not change" in keras_dp.stderr


def test_ctrl_c_leaves_a_model_and_a_ledger_to_resume(keras_dp, tmp_path, monkeypatch):
    def interrupt(self, batch, logs=None):
        if batch == 34:  # In the middle of the second epoch, and of a lot.
            raise KeyboardInterrupt

    arguments = ("--noise-multiplier", 2, "--accumulation-steps", 2)
    with monkeypatch.context() as patch:
        patch.setattr(_training_files.HistoryWriter, "on_train_batch_end", interrupt)
        status = keras_dp(
            *QUICK, *arguments, "--epochs", 3, "--output-dir", tmp_path, "--quiet"
        )
    assert status == 130 and "--resume" in keras_dp.stdout

    # Batches 0 to 34 complete 17 lots; the half lot has no noise and is not saved.
    record = json.loads((tmp_path / "privacy.json").read_text())
    assert record["releases"] == 17
    optimizer = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert int(optimizer.releases) == 17
    for variable in optimizer.variables:
        if "lot_accumulator" in variable.path:
            assert np.all(variable.numpy() == 0)

    resumed = keras_dp.json("train", "--output-dir", tmp_path, "--resume")
    # The interrupted epoch is trained anew, and what it had spent stays spent.
    assert resumed["releases"] == 17 + 3 * round(1438 / 64)
    assert resumed["epsilon"] > record["epsilon"]


def test_the_budget_holds_after_an_interruption(keras_dp, tmp_path, monkeypatch):
    def interrupt(self, batch, logs=None):
        if batch == 10:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_training_files.HistoryWriter, "on_train_batch_end", interrupt)
        keras_dp(*QUICK, "--epochs", 2, "--output-dir", tmp_path, "--quiet")
    resumed = keras_dp.json("train", "--output-dir", tmp_path, "--resume")
    assert 2.9 < resumed["epsilon"] <= 3.0
    assert resumed["releases"] == 2 * round(1438 / 64)


def test_private_pca_is_in_the_ledger_and_in_the_budget(keras_dp, tmp_path):
    summary = keras_dp.json(
        *("train", "--model", "pca_mlp", "--epochs", 1, "--batch-size", 64),
        *("--target-epsilon", 3, "--output-dir", tmp_path),
    )
    record = json.loads((tmp_path / "privacy.json").read_text())
    (pca,) = record["ledger"]["one_offs"]
    assert pca["count"] == 1 and pca["sampling"]["class_name"] == "FullBatch"
    expected = sampled_gaussian_epsilon(
        summary["noise_multiplier"],
        64 / 1438,
        round(1438 / 64),
        1e-4,
        pca["claim"]["proven"]["config"]["noise_multiplier"],
    )
    assert 2.9 < summary["epsilon"] <= 3.0
    assert summary["epsilon"] == pytest.approx(expected, rel=0.01)


def test_a_seed_fixes_initial_weights_but_no_noise(keras_dp, tmp_path):
    kernels = []
    for name in "ab":
        arguments = ("--epochs", 1, "--seed", 1, "--output-dir", tmp_path / name)
        keras_dp.json(*QUICK, *arguments)
        model = keras.saving.load_model(tmp_path / name / "model.keras")
        kernels.append(model.trainable_weights[0].numpy())
    assert np.mean(kernels[0] == kernels[1]) < 0.01


def test_own_data_and_own_model(keras_dp, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[400, 5]).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (tmp_path / "own_model.py").write_text(
        "import keras\n"
        "def network(data):\n"
        "    return keras.Sequential([keras.Input(data.x_train.shape[1:]),\n"
        "        keras.layers.Dense(data.num_classes, activation='softmax')])\n"
    )
    monkeypatch.chdir(tmp_path)
    summary = keras_dp.json(
        *("train", "--dataset", "own.npz", "--model", "own_model:network"),
        *("--target-epsilon", 8, "--epochs", 5, "--batch-size", 100),
    )
    assert summary["test_accuracy"] > 0.75
    assert summary["output_dir"] == "runs/own-dpsgd"


def test_published_tanh_says_that_it_has_no_guarantee(keras_dp, tmp_path):
    with pytest.warns(UserWarning):
        summary = keras_dp.json(
            *(*QUICK, "--mechanism", "tanh", "--noise-multiplier", 1.1),
            *("--set", "guarantee=published", "--epochs", 1),
            *("--output-dir", tmp_path),
        )
    assert float(summary["epsilon"]) > 20 * summary["published_epsilon"]
    assert math.isfinite(summary["published_epsilon"])
