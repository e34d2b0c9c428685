"""Trainings of benchmarks/papers that are interrupted: they go on, and spend no less."""

import csv
import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from benchmarks.papers import common, noise_direction, run_files, runs, tuning
from keras_dp_ext.data.sets.data_set import DataSet

EXAMPLES, LOT, EPOCHS = 60, 12, 4
STEPS = EXAMPLES // LOT


def made_up_data(examples: int = EXAMPLES) -> DataSet:
    rng = np.random.default_rng(0)
    x = rng.normal(size=[examples + 20, 4]).astype("float32")
    y = (x[:, 0] > 0).astype("uint8")
    train, test = slice(None, examples), slice(examples, None)
    return DataSet("made_up", x[train], y[train], x[test], y[test], 2)


def small_model(data: DataSet) -> keras.Model:
    return keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(3, "relu"), keras.layers.Dense(2)]
    )


def dp_sgd():
    return dp.optimizers.DPSGD(
        learning_rate=0.5, noise_multiplier=2.0, l2_norm_clip=1.0
    )


def make_case(**changes) -> runs.Case:
    arguments = {
        "labels": {"method": "DP-SGD"},
        "build": small_model,
        "optimizer": dp_sgd,
        "batch_size": LOT,
        "epochs": EPOCHS,
        "settings": {"method": "DP-SGD", "learning_rate": 0.5, "noise": 2.0},
    }
    return runs.Case(**{**arguments, **changes})


def parse(tmp_path, *argv):
    return common.parse_arguments(
        "A script.",
        "script",
        argv=["--output-dir", str(tmp_path), "--cache-dir", str(tmp_path / "c"), *argv],
    )


class InterruptionError(Exception):
    """Stands for a kill."""


def interrupted_in_epoch(number: int):
    """Makes callbacks that stop the training in the middle of an epoch, once."""
    stopped = []

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self._epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if self._epoch == number and batch == 2 and not stopped:
                stopped.append(True)
                raise InterruptionError

    return lambda data: [Stop()]


def train(tmp_path, case: runs.Case, *argv: str) -> list[dict]:
    arguments = parse(tmp_path, "--seeds", "1", *argv)
    return runs.run_cases(arguments, "figure", made_up_data(), [case])


def spent(releases: int) -> float:
    """By dp_accounting, for the planned training without any interruption."""
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(
        LOT / EXAMPLES, dp_accounting.GaussianDpEvent(2.0)
    )
    accountant.compose(event, releases)
    return accountant.get_epsilon(runs.DELTA)


def test_training_stopped_in_an_epoch_goes_on_with_the_planned_lots(tmp_path, capsys):
    case = make_case(callbacks=interrupted_in_epoch(2))
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    assert not (tmp_path / "runs" / "figure.csv").exists()
    rows = train(tmp_path, case)
    assert "goes on after epoch 2" in capsys.readouterr().out
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row["step"] for row in rows] == [STEPS * n for n in (1, 2, 3, 4)]
    assert list((tmp_path / "c").rglob("*.h5")) == []


def test_epsilon_of_a_resumed_training_covers_all_its_updates(tmp_path):
    case = make_case(callbacks=interrupted_in_epoch(2))
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    for row in train(tmp_path, case):
        # Padded lots cost a little more than dp_accounting's Poisson lots.
        assert spent(row["step"]) <= row["epsilon"] <= 1.02 * spent(row["step"])


def test_resumed_training_has_the_weights_and_slots_that_were_saved(tmp_path):
    seen = {}

    class Watch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.setdefault(epoch, []).append(
                [np.array(v) for v in self.model.weights]
                + [np.array(v) for v in self.model.optimizer.momentums]
            )

    stop = interrupted_in_epoch(2)
    case = make_case(
        optimizer=lambda: dp.optimizers.DPSGD(
            learning_rate=0.5, noise_multiplier=2.0, l2_norm_clip=1.0, momentum=0.9
        ),
        callbacks=lambda data: [Watch(), *stop(data)],
    )
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    train(tmp_path, case)
    before, after = seen[2]
    assert len(seen[0]) == 1 and len(before) == 8
    for saved, restored in zip(before, after, strict=True):
        np.testing.assert_array_equal(saved, restored)


def test_lots_and_noise_are_not_repeated_after_a_resumption(tmp_path):
    """The updates of the lost epoch and of its repetition differ."""
    ends = []

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == 2 * STEPS + 1:
                ends.append([np.array(v) for v in self.model.weights])

    stop = interrupted_in_epoch(2)
    case = make_case(callbacks=lambda data: [End(), *stop(data)])
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    train(tmp_path, case)
    first, second = ends
    assert all(np.any(a != b) for a, b in zip(first, second, strict=True))


OPTIMIZERS = {
    "encoding": lambda: dp.optimizers.EncodedSGD(
        learning_rate=1.0, noise=dp.noise.StudentT(df=9, scale=1.0), denoise="ks"
    ),
    "tanh as printed": lambda: dp.optimizers.TanhSGD(
        learning_rate=0.1, noise_multiplier=1.1, guarantee="published"
    ),
    "directional": lambda: dp.optimizers.DirectionalSGD(
        learning_rate=0.1, noise_multiplier=2.0, l2_norm_clip=1.0
    ),
    "AdaClip": lambda: dp.optimizers.AdaClipSGD(
        learning_rate=0.1, noise_multiplier=2.0, gamma=0.01
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "encoding" else [pytest.mark.slow])
        for name in OPTIMIZERS
    ],
)
def test_resumed_training_costs_what_the_whole_one_costs(tmp_path, name):
    """Codebooks, axes and moments are state, too: none may begin anew."""
    plain = make_case(optimizer=OPTIMIZERS[name], settings={"method": "whole"})
    whole = train(tmp_path, plain)
    case = dataclasses.replace(
        plain, settings={"method": "resumed"}, callbacks=interrupted_in_epoch(2)
    )
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    resumed = train(tmp_path, case)
    for column in ("epsilon", "published_epsilon", "step"):
        expected = [row[column] for row in whole]
        if expected[0] is not None:
            expected = pytest.approx(expected, rel=1e-6)
        assert [row[column] for row in resumed] == expected


def test_adapted_layer_is_one_release_however_often_training_is_resumed(tmp_path):
    adapted = []

    def build(data):
        pca = dp.data.PrivatePCA(2, noise_multiplier=3.0)
        return keras.Sequential([keras.Input([4]), pca, keras.layers.Dense(2)])

    def adapt(model, data):
        adapted.append(True)
        model.layers[0].adapt(data.x_train)

    plain = make_case(build=build, adapt=adapt, settings={"method": "a"})
    whole = train(tmp_path, plain)
    case = dataclasses.replace(
        plain, settings={"method": "b"}, callbacks=interrupted_in_epoch(2)
    )
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    resumed = train(tmp_path, case)
    assert len(adapted) == 2
    assert [row["epsilon"] for row in resumed] == pytest.approx(
        [row["epsilon"] for row in whole]
    )


def test_printed_algorithm_remembers_the_noise_of_all_its_steps(tmp_path):
    budget = dp.analysis.PublishedBudget(1.0, 1e-3, LOT / EXAMPLES, EPOCHS * STEPS)
    stop = interrupted_in_epoch(2)
    counted = {}

    class Count(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            entries = self.model.optimizer.mechanism.recorded_events(
                int(self.model.optimizer.releases.numpy())
            )
            counted[epoch] = len(entries)

    case = make_case(
        optimizer=lambda: dp.optimizers.DirectionalSGD(
            learning_rate=0.1,
            l2_norm_clip=1.0,
            guarantee="published",
            published_budget=budget,
        ),
        callbacks=lambda data: [
            noise_direction.NoiseDirection(),
            Count(),
            *stop(data),
        ],
    )
    with pytest.raises(InterruptionError):
        train(tmp_path, case)
    rows = train(tmp_path, case)
    epsilons = [row["epsilon"] for row in rows]
    assert epsilons == sorted(epsilons) and len(set(epsilons)) == EPOCHS
    assert rows[-1]["published_epsilon"] == pytest.approx(1.0, rel=0.02)
    assert counted[3] >= counted[1]


def test_longer_training_contains_the_shorter_one(tmp_path, capsys):
    rows = train(tmp_path, make_case())
    capsys.readouterr()
    first = train(tmp_path, make_case(epochs=2))
    for one, other in zip(first, rows[:2], strict=True):
        assert one["step"] == other["step"] and one["accuracy"] == other["accuracy"]
        assert one["epsilon"] == pytest.approx(other["epsilon"], rel=1e-5)
    assert capsys.readouterr().out == ""


def test_other_settings_are_another_training(tmp_path):
    train(tmp_path, make_case(epochs=1))
    other = make_case(
        epochs=1, settings={"method": "DP-SGD", "learning_rate": 0.5, "noise": 3.0}
    )
    train(tmp_path, other)
    text = (tmp_path / "runs" / "figure.csv").read_text()
    assert text.count("noise=2") == 1 and text.count("noise=3") == 1


def test_finished_rows_read_back_as_they_were(tmp_path):
    case = make_case(epochs=2, evaluate_every=2, training_accuracy=True)
    rows = train(tmp_path, case)
    assert [row["epoch"] for row in rows] == [None, None, 1, None, None, 2]
    assert [row["step"] for row in rows] == [2, 4, 5, 7, 9, 10]
    assert all(0 <= row["training_accuracy"] <= 1 for row in rows)
    again = train(tmp_path, case, "--finished-only")
    for one, other in zip(rows, again, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            number = isinstance(value, float)
            assert other[key] == (pytest.approx(value, rel=1e-5) if number else value)


def test_plan_lists_what_is_missing_and_trains_nothing(tmp_path, capsys):
    train(tmp_path, make_case(epochs=2))
    capsys.readouterr()
    longer = make_case(epochs=6)
    assert train(tmp_path, longer, "--plan") == []
    out = capsys.readouterr().out
    assert "figure: 0 of 1 trainings are finished" in out
    assert "missing: DP-SGD, seed 0, 6 epochs, not timed" in out
    assert not list((tmp_path / "c").rglob("*.h5"))


def test_measured_steps_give_the_plan_its_hours(tmp_path, capsys):
    case = make_case(epochs=3600, evaluate_every=2)
    assert train(tmp_path, case, "--measure") == []
    capsys.readouterr()
    train(tmp_path, case, "--plan")
    out = capsys.readouterr().out
    with open(tmp_path / "runs" / "step_times.csv") as file:
        (row,) = csv.DictReader(file)
    # Three evaluations in an epoch: after two lots, after four, and at its end.
    expected = STEPS * float(row["lot_s"]) + 3 * 20 * float(row["image_s"])
    assert f"3600 epochs, {expected:.2f} h" in out
    # A lot of twice the size takes twice the time, half as often.
    larger = make_case(epochs=3600, evaluate_every=2, batch_size=2 * LOT)
    train(tmp_path, larger, "--plan")
    expected = 2 * 2 * float(row["lot_s"]) + 2 * 20 * float(row["image_s"])
    assert f"3600 epochs, {expected:.2f} h" in capsys.readouterr().out
    assert not (tmp_path / "runs" / "figure.csv").exists()


def test_figure_of_unfinished_trainings_says_which_are_missing(tmp_path):
    data = made_up_data()
    data = dataclasses.replace(data, name="mnist")
    cases = [
        make_case(epochs=1),
        make_case(epochs=1, labels={"method": "other"}, settings={"method": "other"}),
    ]
    arguments = parse(tmp_path, "--seeds", "1")
    runs.run_cases(arguments, "figure", data, cases[:1])
    arguments.finished_only = True
    rows = runs.run_cases(arguments, "figure", data, cases)
    note = common.size_note(data, "mnist", cases, rows, 60)
    assert "1 of 60 epochs" in note and "60 of 60,000 training examples" in note
    assert "Not trained yet: other." in note


def claim_of(tmp_path, case: runs.Case, wait: bool = False):
    identity = case.identity(made_up_data(), 0)
    folder = tmp_path / "c" / "figure" / f"{identity.run}_0"
    return run_files.claimed(folder, wait)


def test_training_of_another_process_is_left_to_it(tmp_path, capsys):
    case = make_case(epochs=1)
    other = make_case(epochs=1, labels={"method": "b"}, settings={"method": "b"})
    arguments = parse(tmp_path, "--seeds", "1")
    with claim_of(tmp_path, case) as mine:
        assert mine
        rows = runs.run_cases(arguments, "figure", made_up_data(), [case, other])
    assert [row["method"] for row in rows] == ["b"]
    assert "DP-SGD, seed" not in capsys.readouterr().out


def test_waiting_process_trains_what_another_gives_up(tmp_path):
    case, held = make_case(epochs=1), threading.Event()
    given_up = []

    def hold():
        with claim_of(tmp_path, case) as mine:
            assert mine
            held.set()
            time.sleep(1.0)
            given_up.append(time.monotonic())

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    arguments = parse(tmp_path, "--seeds", "1")
    rows = runs.run_cases(arguments, "figure", made_up_data(), [case], wait=True)
    thread.join()
    assert len(rows) == 1 and given_up


def test_claim_of_a_killed_process_is_free(tmp_path):
    folder = tmp_path / "store" / "training"
    holder = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys, time, pathlib; from benchmarks.papers import run_files\n"
            "with run_files.claimed(pathlib.Path(sys.argv[1])) as mine:\n"
            "    print(mine, flush=True); time.sleep(600)",
            str(folder),
        ],
        cwd=Path(common.__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"True\n"
        with run_files.claimed(folder) as mine:
            assert not mine
    finally:
        holder.kill()
        holder.wait()
    with run_files.claimed(folder) as mine:
        assert mine


def test_processes_add_to_one_file_of_finished_trainings(tmp_path):
    curve = [{"epoch": 1, "step": 5, "accuracy": 0.5, "epsilon": 1.0}]
    files = [run_files.FinishedRuns(tmp_path / "runs" / "new.csv") for _ in range(2)]
    names = [run_files.Identity(f"method={name}", 0) for name in "ab"]
    for file, name in zip(files, names, strict=True):
        file.add(name, curve)
    files[0].read_again()
    assert all(files[0].curve(name, 1)[0]["step"] == 5 for name in names)


def test_search_goes_on_beyond_its_edge_and_the_scripts_take_its_best_rate(tmp_path):
    data = made_up_data(180)
    arguments = parse(tmp_path)

    def case(method, rate):
        return make_case(
            labels={},
            settings={"method": method, "learning_rate": rate},
            optimizer=lambda: keras.optimizers.SGD(rate),
        )

    arguments.epochs = 2
    # Rates that teach nothing: any larger one is better.
    tuning.tune(arguments, "made_up", data, {"SGD": (1e-3, 2e-3)}, case)
    tuned = tuning.tuned_rates(arguments, "made_up")
    text = (tmp_path / "learning_rates_made_up.csv").read_text()
    tried = {float(line.split(",")[1]) for line in text.splitlines()[1:]}
    assert {1e-3, 2e-3} < tried
    assert tuned["SGD"] in tried
    # Another method joins the table.
    tuning.tune(arguments, "made_up", data, {"other": (0.25, 0.5, 1.0)}, case)
    assert tuning.tuned_rates(arguments, "made_up").keys() == {"SGD", "other"}
    note = tuning.rates_note(arguments, "made_up", {"SGD": tuned["SGD"], "x": 1.0})
    assert f"SGD {tuned['SGD']:g}" in note and "not tuned: x" in note


def test_held_out_images_are_not_trained_on():
    data = made_up_data(60)
    part = tuning.hold_out(data)
    assert len(part.x_train) == 50 and len(part.x_test) == 10
    np.testing.assert_array_equal(
        np.concatenate([part.x_train, part.x_test]), data.x_train
    )


def test_pinsker_bound_covers_the_exact_distance_of_two_gaussians():
    """One step: the total variation of N(v, s^2) and N(0, s^2) with |v| = alpha."""
    from scipy import stats

    for multiplier in (2.0, 30.0, 3357.0):

        class Budget:
            steps, direction_multiplier = 1, multiplier

        exact = 2 * stats.norm.cdf(1 / (2 * multiplier)) - 1
        bound = noise_direction.total_variation_bound(Budget)
        assert exact <= bound <= 1.3 * exact


def test_bound_of_the_papers_setting():
    budget = dp.analysis.PublishedBudget(1.0, 1e-5, 512 / 55_000, 6420, 1 / 8)
    assert noise_direction.total_variation_bound(budget) == pytest.approx(
        0.012, abs=5e-5
    )


def test_noise_direction_is_noise_of_the_printed_size_and_is_counted():
    budget = dp.analysis.PublishedBudget(1.0, 1e-5, 0.1, 4, 1 / 8)
    optimizer = dp.optimizers.DirectionalSGD(
        learning_rate=0.1,
        l2_norm_clip=0.5,
        guarantee="published",
        published_budget=budget,
    )
    model = keras.Sequential([keras.Input([40]), keras.layers.Dense(50)])
    model.compile(optimizer, "mse", jit_compile=False)
    x = np.ones([40, 40], "float32")
    directions = []

    class Keep(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            slots = [v for v in optimizer.variables if re.search(r"ion_\d+$", v.name)]
            directions.append(np.concatenate([np.ravel(v) for v in slots]))

    callbacks = [noise_direction.NoiseDirection(), Keep()]
    model.fit(x, x[:, :1] * np.ones([1, 50]), 20, verbose=0, callbacks=callbacks)
    assert len(directions) == 2 and np.any(directions[0] != directions[1])
    (counter,) = (v for v in optimizer.variables if "direction_releases" in v.name)
    assert int(counter.numpy()) == 2
    deviation = 0.5 * budget.direction_multiplier
    for direction in directions:
        assert len(direction) == model.count_params()
        assert np.std(direction) == pytest.approx(deviation, rel=0.1)


@pytest.mark.slow
def test_killed_process_goes_on_where_it_was(tmp_path):
    """SIGKILL between two epochs of a real script; then the same command again."""
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (600, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 600, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (50, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 50, dtype=np.uint8),
    }
    np.savez(tmp_path / "mnist.npz", **arrays)
    command = [
        *(sys.executable, "-m", "benchmarks.papers.abadi_figure3", "--only", "large"),
        *("--seeds", "1", "--data-dir", str(tmp_path), "--output-dir", str(tmp_path)),
        *("--cache-dir", str(tmp_path / "c")),
    ]
    repository = Path(common.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    process = subprocess.Popen(command, env=environment, cwd=tmp_path)
    limit = time.monotonic() + 300
    while not list((tmp_path / "c").rglob("epoch_3.weights.h5")):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, check=True, capture_output=True
    )
    assert b"goes on after epoch" in done.stdout
    assert "20 epochs" in (tmp_path / "abadi_figure3.md").read_text()
    finished = run_files.FinishedRuns(tmp_path / "runs" / "abadi_figure3.csv")
    (curve,) = finished._curves.values()
    assert [row["step"] for row in curve] == [100 * n for n in range(1, 21)]
    epsilons = [row["epsilon"] for row in curve]
    assert epsilons == sorted(epsilons)
