"""Every `keras-dp` command in the README and on the pages of docs runs as it stands."""

import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from keras_dp_ext.cli.main import main

ROOT = pathlib.Path(__file__).parents[2]
# Its commands need the module of the page, see test_adding_a_mechanism.py.
PAGES = [
    page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "guides").glob("*.md")),
    )
    if page.name != "adding_a_mechanism.md"
]

# What makes a command small. The last of two equal options counts.
SMALL = {
    "audit": ["--runs", "200", "--parameters", "4"],
    "train": ["--epochs", "1", "--quiet", "--data-dir", "DIR", "--batch-size", "100"],
    "compare": ["--epochs", "1", "--seeds", "1", "--quiet"],
}


def _commands():
    found = {}
    for page in PAGES:
        text = page.read_text()
        for command in re.findall(r"^keras-dp (\w.*)$", text, re.MULTILINE):
            found[command.partition("#")[0].strip()] = page.name
        for command in re.findall(r"`keras-dp (\w[^`]*)`", text):
            found.setdefault(command, page.name)
    # A name alone, such as `keras-dp train`, speaks of the command.
    return [c for c in found if " " in c or c == "audit"]


COMMANDS = _commands()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with all that the commands name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "DIR").mkdir()
    images = {
        f"x_{part}": rng.integers(0, 256, [n, 28, 28], dtype=np.uint8)
        for part, n in (("train", 600), ("test", 50))
    }
    labels = {
        f"y_{part}": np.arange(n, dtype=np.uint8) % 10
        for part, n in (("train", 600), ("test", 50))
    }
    np.savez(tmp_path / "DIR" / "mnist.npz", **images, **labels)
    rows = [
        f"{a:.3f},{'yes' if a > 0 else 'no'},{number // 2}"
        for number, a in enumerate(rng.normal(size=500))
    ]
    (tmp_path / "table.csv").write_text("\n".join(["number,column,id", *rows]))


def test_there_are_commands():
    assert {c.split()[0] for c in COMMANDS} == {
        *("audit", "calibrate", "compare", "epsilon", "report", "train")
    }


# All mechanisms in turn, which takes a minute.
LONG = {"audit": [pytest.mark.slow]}


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=LONG.get(c, [])) for c in COMMANDS]
)
def test_the_command_runs(place, capsys, command):
    words = shlex.split(command)
    if words[0] == "report":
        train = ["train", "--epochs", "1", "--quiet", "--output-dir", words[1]]
        assert main([*train, "--target-epsilon", "3"]) == 0
    assert main([*words, *SMALL.get(words[0], [])]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()


def test_the_audit_can_be_asked_for_one_guarantee(capsys):
    command = ["audit", "--mechanism", "tanh", "--json"]
    labels = {}
    for guarantee in ("proven", "published", None):
        chosen = [] if guarantee is None else ["--guarantee", guarantee]
        size = ["--runs", "2000"] if guarantee == "published" else SMALL["audit"]
        assert main([*command, *chosen, *size]) == 0
        result = json.loads(capsys.readouterr().out)
        labels[guarantee] = [entry["mechanism"] for entry in result]
        if guarantee == "published":
            # What docs/errata.md says that it shows.
            assert result[0]["verdict"] == "published REFUTED"
    assert labels["proven"] == ["tanh"]
    assert labels["published"] == ["tanh, as published"]
    assert labels[None] == ["tanh", "tanh, as published"]


def test_a_guarantee_that_the_mechanism_does_not_have_is_an_error(capsys):
    command = ["audit", "--mechanism", "dpsgd", "--guarantee", "published"]
    assert main(command) == 2
    assert "tanh, directional" in capsys.readouterr().err
