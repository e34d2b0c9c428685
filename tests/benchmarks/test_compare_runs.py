"""Two runs of a benchmark: what counts as worse, and what as noise."""

import copy
import json

import pytest

from benchmarks import compare_runs


def step(ratio, spread=0.02, cpu_ratio=None):
    return {
        "ratio": [ratio, ratio - spread, ratio + spread],
        "cpu_ratio": cpu_ratio or ratio,
    }


BEFORE = {"W1": {"plain": step(1.0), "dpsgd": step(1.5), "tanh": step(2.5)}}
MEMORY = [
    ["W1", 64, "static", "plain", 700.0, 1.0],
    ["W1", 64, "static", "dpsgd", 770.0, 1.1],
]


def after(**changed):
    later = copy.deepcopy(BEFORE)
    later["W1"].update(changed)
    return later


def names_of_worse(later):
    return [c.name for c in compare_runs.compare(BEFORE, later) if c.is_worse]


def test_the_same_run_is_not_worse():
    assert names_of_worse(BEFORE) == []


def test_a_slower_step_is_worse():
    assert names_of_worse(after(dpsgd=step(1.8))) == ["W1 dpsgd"]


def test_a_faster_step_is_not_worse():
    assert names_of_worse(after(dpsgd=step(1.1))) == []


def test_growth_within_the_tolerance_is_not_worse():
    assert names_of_worse(after(dpsgd=step(1.6))) == []


def test_overlapping_quartiles_are_noise():
    assert names_of_worse(after(dpsgd=step(1.8, spread=0.4))) == []


def test_a_clock_that_other_programs_disturbed_is_noise():
    assert names_of_worse(after(dpsgd=step(1.8, cpu_ratio=1.5))) == []


def test_more_memory_is_worse():
    later = [*MEMORY[:1], ["W1", 64, "static", "dpsgd", 1000.0, 1.4]]
    (change,) = compare_runs.compare(MEMORY, later)
    assert change.is_worse and change.name == "W1 64 static dpsgd"


@pytest.mark.parametrize(
    ("later", "status"),
    [(BEFORE, 0), (after(tanh=step(4.0)), 1), (MEMORY, 2), ({"W9": {}}, 2)],
)
def test_exit_status(tmp_path, later, status):
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, content in zip(paths, (BEFORE, later), strict=True):
        path.write_text(json.dumps(content))
    assert compare_runs.main(list(map(str, paths))) == status


def test_a_missing_file_does_not_count_as_a_regression(tmp_path):
    assert compare_runs.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
