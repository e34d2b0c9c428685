"""The comparison of mechanisms: its search, and that it goes on."""

import csv

import numpy as np
import pytest

from benchmarks import mechanisms
from keras_dp_ext.data import DataSet


def test_the_search_ends_where_no_neighbour_is_better_however_far_it_begins():
    asked = []

    def score(point):
        asked.append(point)
        wished = -((point["step"] - 7) ** 2) - (point["clip"] + 5) ** 2
        return wished - (point["direction"] != "adaclip")

    best = mechanisms.best_point(score, {"step": 0, "clip": 0, "direction": "gradient"})
    assert best == {"step": 7, "clip": -5, "direction": "adaclip"}
    for name in best:
        for neighbour in mechanisms.neighbours(best, name):
            assert neighbour in asked
            assert score(neighbour) < score(best)


def test_a_plateau_ends_the_search():
    start = {"step": 0, "clip": 0}
    assert mechanisms.best_point(lambda point: 0.5, start) == start


def test_a_point_is_a_step_of_the_weights_whatever_the_clip():
    method = mechanisms.METHODS["tanh"]
    found = mechanisms.arguments_of(method, {"step": 3, "clip": -1, "range": 1})
    assert found["learning_rate"] * found["l2_norm_clip"] == pytest.approx(8.0)
    assert found["options"] == {"output_range": 3.0, "active_range": 3.0}


@pytest.fixture
def small(monkeypatch):
    """A problem of 200 rows in place of the real ones."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[200, 6]).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    data = DataSet("small", x, y, x[:50], y[:50], num_classes=2)
    problem = mechanisms.Problem("Small", "linear", 1, 50, 0, load=lambda asked: data)
    monkeypatch.setattr(mechanisms, "PROBLEMS", {"small": problem})


def test_each_mechanism_has_its_best_settings_and_no_training_is_made_twice(
    small, tmp_path, monkeypatch
):
    made = []

    def trained(comparison, arguments, seed, tuning):
        made.append(arguments)
        far = abs(arguments["learning_rate"] * arguments["l2_norm_clip"] - 4.0)
        worse = 0.5 * (arguments["options"].get("denoise", "ks") is None)
        accuracy = 1 / (1 + far) - worse
        return {**arguments, "seed": seed, "accuracy": accuracy, "epsilon": 3.0}

    monkeypatch.setattr(mechanisms.Comparison, "_train", trained)
    command = ["--problems", "small", "--seeds", "2", "--results-dir"]
    command += [str(tmp_path), "--output-dir", str(tmp_path / "runs")]
    mechanisms.main(command)
    with open(tmp_path / "mechanisms.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["mechanism"] for row in rows] == [
        *("dpsgd", "encoding", "tanh", "directional")
    ]
    for row in rows:
        step = float(row["learning_rate"]) * float(row["l2_norm_clip"])
        assert step == pytest.approx(4.0)
        assert "denoise" not in row["options"]
    assert sum(int(row["settings_tried"]) for row in rows) + 8 == len(made)
    with open(tmp_path / "mechanisms_runs.csv") as file:
        assert len(list(csv.DictReader(file))) == len(made)
    former = (tmp_path / "mechanisms.csv").read_text()
    number = len(made)
    mechanisms.main(command)
    assert len(made) == number
    assert (tmp_path / "mechanisms.csv").read_text() == former


def test_a_training_that_was_broken_off_is_made_again(small, tmp_path, monkeypatch):
    comparison = mechanisms.Comparison("small", 3.0, tmp_path, {})
    point = {"step": 0, "clip": 0}
    train = mechanisms.Comparison._train
    with monkeypatch.context() as context:
        context.setattr(mechanisms.Comparison, "_train", lambda *arguments: {})
        context.setattr(mechanisms.os, "replace", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            comparison.run("dpsgd", point, seed=0)
    assert mechanisms.Comparison._train is train
    assert mechanisms.all_runs(tmp_path) == []
    made = comparison.run("dpsgd", point, seed=0)
    assert 2.9 < made["epsilon"] <= 3.0
    assert 0 <= made["accuracy"] <= 1
    assert mechanisms.all_runs(tmp_path) == [made]


def test_tuning_never_sees_the_test_set():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    data = DataSet("rows", x, y, x - 100, y, num_classes=10)
    split = mechanisms.held_out(data)
    rows = np.concatenate([split.x_train, split.x_test])
    np.testing.assert_array_equal(rows, data.x_train)
    assert len(split.x_test) == 2
