"""A training without matplotlib is a success, without a figure."""

import sys

import pytest


@pytest.mark.filterwarnings("ignore:No figure was written")
def test_training_succeeds_and_says_what_is_missing(keras_dp, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status = keras_dp(
        *("train", "--epochs", 1, "--quiet", "--output-dir", tmp_path, "--model"),
        "linear",
    )
    assert status == 0
    assert (tmp_path / "model.keras").exists()
    assert not (tmp_path / "training.png").exists()
