"""Runs the command line in this process."""

import json

import pytest

from keras_dp_ext.cli.main import main


class CommandLine:
    """Runs `keras-dp`, and remembers what it printed."""

    def __init__(self, capsys):
        self._capsys = capsys

    def __call__(self, *arguments: object) -> int:
        self._capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        self.stdout, self.stderr = self._capsys.readouterr()
        return status

    def json(self, *arguments: object) -> dict:
        """The JSON that a successful run prints."""
        assert self(*arguments, "--json", "--quiet") == 0, self.stderr
        return json.loads(self.stdout)


@pytest.fixture
def keras_dp(capsys) -> CommandLine:
    return CommandLine(capsys)
