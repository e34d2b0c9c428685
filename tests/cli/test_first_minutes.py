"""What a newcomer types first, and types wrongly."""

import os
import subprocess
import sys

import pytest

import keras_dp_ext
from keras_dp_ext.cli.main import main


def test_without_a_subcommand_the_help_is_shown(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("train", "epsilon", "calibrate", "audit"))


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"keras-dp-ext {keras_dp_ext.__version__}\n"


@pytest.mark.parametrize("equals", [False, True])
def test_underscores_as_in_python(capsys, equals):
    target = ["--target_epsilon=3"] if equals else ["--target_epsilon", "3"]
    rest = "--num_examples 60000 --batch_size 256 --epochs 60 --delta 1e-5 --json"
    assert main(["calibrate", *target, *rest.split()]) == 0
    spelled = capsys.readouterr().out
    rest = rest.replace("_", "-")
    assert main(["calibrate", "--target-epsilon", "3", *rest.split()]) == 0
    assert capsys.readouterr().out == spelled


def test_a_misspelled_data_set_is_found_out_without_tensorflow(tmp_path):
    code = (
        "import sys\nfrom keras_dp_ext.cli.main import main\n"
        "status = main(['train', '--dataset', 'minst'])\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 2, done.stderr
    assert "Did you mean `mnist`?" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_mistyped_subcommand_gets_a_suggestion(capsys):
    assert main(["tarin"]) == 2
    assert "Did you mean train?" in capsys.readouterr().err
    assert main(["xyz"]) == 2
    assert "Did you mean" not in capsys.readouterr().err
