"""Killed, saved, restored, rolled back: what was spent stays spent."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import data, dense_model, flat

import keras_dp_ext as dp

SAMPLING = dp.accounting.Poisson(0.1)


def trained(steps=3, optimizer="DPAdam", **arguments):
    x, y = data(8 * steps)
    model = dense_model()
    model.compile(
        getattr(dp.optimizers, optimizer)(**arguments), loss="mse", jit_compile=False
    )
    model.optimizer.build(model.trainable_variables)
    model.optimizer.declare_sampling(SAMPLING)
    model.fit(x, y, batch_size=8, verbose=0)
    return model


def spent(model):
    optimizer = model.optimizer
    releases = int(optimizer.releases.numpy())
    return releases, optimizer.ledger.epsilon(releases, delta=1e-5)


def fresh(optimizer="DPAdam", **arguments):
    model = dense_model(seed=1)
    model.compile(
        getattr(dp.optimizers, optimizer)(**arguments), loss="mse", jit_compile=False
    )
    return model


def by_keras(model, path):
    model.save(path / "m.keras")
    return keras.saving.load_model(path / "m.keras")


def by_weights(model, path):
    model.save_weights(path / "m.weights.h5")
    loaded = fresh()
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(path / "m.weights.h5")
    return loaded


def by_checkpoint(model, path):
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(path / "c")
    loaded = fresh()
    loaded.optimizer.build(loaded.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=loaded, optimizer=loaded.optimizer)
    checkpoint.restore(saved).assert_existing_objects_matched()
    return loaded


@pytest.mark.parametrize("way", [by_keras, by_weights, by_checkpoint])
def test_weights_state_and_budget_come_back(way, tmp_path):
    model = trained()
    loaded = way(model, tmp_path)
    np.testing.assert_array_equal(flat(model), flat(loaded))
    assert spent(loaded) == spent(model)
    for old, new in zip(
        model.optimizer.variables, loaded.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(old.numpy(), new.numpy())


def test_going_back_to_an_older_checkpoint_gives_no_budget_back(tmp_path):
    model = trained()
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    path, old = checkpoint.save(tmp_path / "c"), flat(model)
    model.fit(*data(16), batch_size=8, verbose=0)
    later = spent(model)
    checkpoint.restore(path)
    np.testing.assert_array_equal(flat(model), old)
    assert spent(model) == later


def test_the_budget_comes_back_where_keras_skips_the_optimizers_variables(tmp_path):
    # Another base optimizer, or lots: Keras warns and loads none of its state.
    model = trained()
    model.save_weights(tmp_path / "m.weights.h5")
    for other in (fresh("DPSGD"), fresh(gradient_accumulation_steps=2)):
        other.optimizer.build(other.trainable_variables)
        other.load_weights(tmp_path / "m.weights.h5")
        assert spent(other) == spent(model)


def test_less_noise_after_a_restore_is_accounted_as_less_noise(tmp_path):
    # The segment may be opened before the checkpoint is loaded, or after.
    model = trained(noise_multiplier=4.0)
    model.save_weights(tmp_path / "m.weights.h5")
    resumed = fresh(noise_multiplier=0.5)
    resumed.optimizer.build(resumed.trainable_variables)
    resumed.optimizer.declare_sampling(SAMPLING)
    resumed.load_weights(tmp_path / "m.weights.h5")
    resumed.fit(*data(8), batch_size=8, verbose=0)
    claims = [
        (claim.proven.noise_multiplier, count)
        for claim, _, count in resumed.optimizer.ledger.entries(4)
    ]
    assert claims == [(4.0, 3), (0.5, 1)]


# Killed trainings --------------------------------------------------------------


def run_until_done(folder: pathlib.Path, kills: int, seed: int = 0) -> dict:
    """Trains in processes that are killed at random moments, until one is done."""
    script = pathlib.Path(__file__).with_name("killed_training.py")
    moments, epochs, killed = random.Random(seed), 5 * kills, set()
    with open(folder / "output.txt", "w") as output:
        process = subprocess.Popen(
            [sys.executable, script, folder, str(epochs)], stdout=output, stderr=output
        )
    while process.poll() is None:
        time.sleep(0.02)
        pid = _last_to_step(folder / "progress.jsonl")
        if pid is None or pid in killed or len(killed) == kills:
            continue
        time.sleep(moments.uniform(0.0, 1.5))
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
    assert process.returncode == 0, (folder / "output.txt").read_text()
    result = json.loads((folder / "result.json").read_text())
    return {**result, "killed": len(killed), "epochs": epochs}


def _last_to_step(progress: pathlib.Path) -> int | None:
    """The process that made the last step: killed earlier, it would lose nothing."""
    text = progress.read_text() if progress.exists() else ""
    steps = [line for line in text.split("\n")[:-1] if "step" in line]
    return json.loads(steps[-1])["pid"] if steps else None


def check_killed(folder: pathlib.Path, result: dict) -> None:
    """Nothing that was saved is lost, and epsilon is that of all releases."""
    log = [
        json.loads(line)
        for line in (folder / "progress.jsonl").read_text().split("\n")[:-1]
    ]
    saved = 0
    for line in log:
        if "restored" in line:
            assert line["restored"] >= saved
        saved = line.get("saved", saved)
    assert sum("restored" in line for line in log) == result["killed"] + 1
    # Ten releases an epoch; epochs that were cut off were begun again.
    assert result["releases"] == result["iterations"] >= 10 * result["epochs"]
    assert result["epsilon"] == pytest.approx(
        dp.accounting.epsilon(
            [
                (
                    dp.accounting.GaussianRelease(1.0),
                    dp.accounting.Poisson(0.1),
                    result["releases"],
                )
            ],
            1e-5,
        ),
        rel=0.02,  # The pipeline's lots have a capacity, which costs some delta.
    )


def test_a_training_that_is_killed_twice_ends_with_what_it_released(tmp_path):
    result = run_until_done(tmp_path, kills=2)
    assert result["killed"] == 2
    check_killed(tmp_path, result)


@pytest.mark.slow
def test_a_training_that_is_killed_twenty_times_ends_with_what_it_released(tmp_path):
    result = run_until_done(tmp_path, kills=20)
    assert result["killed"] == 20
    check_killed(tmp_path, result)


def test_a_backup_that_is_cut_off_while_writing_leaves_the_one_before(
    tmp_path, monkeypatch
):
    model = trained()
    backup = dp.callbacks.AtomicBackup(tmp_path / "backup")
    backup.set_model(model)
    backup._save_model()
    before = (tmp_path / "backup" / "latest.weights.h5").read_bytes()

    def torn(path, overwrite):
        pathlib.Path(path).write_bytes(before[: len(before) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save_weights", torn)
    with pytest.raises(KeyboardInterrupt):
        backup._save_model()
    resumed = fresh()
    backup.set_model(resumed)
    backup.on_train_begin()
    assert spent(resumed) == spent(model)
