"""The table of layers: what it says, and what it keeps."""

from benchmarks import layers


def test_a_layer_is_checked_with_and_without_xla():
    assert layers.check(layers.CASES["Dense"]) == {
        "correct": True,
        "xla": True,
        "rule": True,
    }


def test_ratios_of_a_former_table_are_kept(tmp_path):
    results = {
        "Dense": {
            "correct": True,
            "xla": True,
            "rule": True,
            "ratio": 1.5,
            "xla_ratio": None,
        },
        "LSTM": {
            "correct": False,
            "xla": None,
            "rule": False,
            "ratio": None,
            "xla_ratio": 2.5,
        },
    }
    path = tmp_path / "layers.md"
    path.write_text(layers.table(results))
    assert layers.ratios_of(path) == {
        "Dense": {"ratio": 1.5, "xla_ratio": None},
        "LSTM": {"ratio": None, "xla_ratio": 2.5},
    }


def test_a_table_of_before_xla_has_ratios_too(tmp_path):
    path = tmp_path / "layers.md"
    path.write_text("| layer | way | correct | ratio |\n| Dense | rule | yes | 1.2 |\n")
    assert layers.ratios_of(path)["Dense"] == {"ratio": 1.2, "xla_ratio": None}
