"""`keras-dp compare`: the same epsilon for all, and figures that add up."""

import csv
import statistics

import pytest


def test_mechanisms_are_compared_at_the_same_epsilon(keras_dp, tmp_path):
    record = keras_dp.json(
        *("compare", "--mechanisms", "dpsgd,tanh", "--seeds", 2, "--model", "linear"),
        *("--epochs", 2, "--target-epsilon", 2, "--output-dir", tmp_path),
    )
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2
    for name, entry in record["mechanisms"].items():
        assert 1.9 < entry["epsilon"] <= 2.0
        last = [
            float(row["test_accuracy"])
            for row in rows
            if row["mechanism"] == name and row["epoch"] == "2"
        ]
        assert entry["accuracies"] == pytest.approx(last)
        assert entry["accuracy_mean"] == pytest.approx(statistics.fmean(last))
        assert entry["accuracy_deviation"] == pytest.approx(statistics.stdev(last))
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
