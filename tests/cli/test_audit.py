"""`keras-dp audit` in a process of its own."""

import json
import subprocess
import sys

import pytest


def audit(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "keras_dp_ext.cli", "audit", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_table_refutes_what_was_published_and_not_what_is_proven():
    done = audit("--mechanism", "tanh", "--runs", "2000", "--parameters", "16")
    assert done.returncode == 0, done.stderr
    proven, published = done.stdout.strip().splitlines()[-2:]
    assert proven.startswith("tanh ") and proven.endswith("  holds")
    assert published.endswith("published REFUTED")


def test_json_is_one_record_for_each_mechanism():
    done = audit("--mechanism", "dpsgd", "--runs", "500", "--json")
    (record,) = json.loads(done.stdout)
    assert record["mechanism"] == "dpsgd"
    assert record["epsilon"] <= record["proven_epsilon"]
    assert record["confidence"] == record["joint_confidence"] == 0.999


def test_confidence_is_that_of_the_whole_table():
    done = audit(
        *("--mechanism", "tanh", "--mechanism", "dpsgd", "--runs", "500", "--json"),
        *("--parameters", "8", "--confidence", "0.97"),
    )
    records = json.loads(done.stdout)
    assert len(records) == 3
    for record in records:
        assert record["joint_confidence"] == 0.97
        assert record["confidence"] == pytest.approx(0.99)


def test_wrong_arguments_are_told_in_one_line():
    done = audit("--runs", "3")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "Argument `runs`" in line


def test_what_is_audited_for_one_release_only_says_so():
    done = audit(
        *("--mechanism", "directional", "--mechanism", "tanh", "--runs", "500"),
        *("--parameters", "8", "--steps", "2", "--json"),
    )
    steps = {r["mechanism"]: r["steps"] for r in json.loads(done.stdout)}
    assert steps == {
        "tanh": 2,
        "tanh, as published": 2,
        "directional": 2,
        "directional, as published, one release": 1,
    }
