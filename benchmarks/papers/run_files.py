"""Files of the papers' trainings: rows of finished ones, and the state of the one at hand.

- `FinishedRuns`, `OUTPUT/runs/NAME.csv`: one row for each evaluation of a finished
  training. Small, and meant to be committed as trainings end.
- `Checkpoint`, below `--cache-dir`: weights, optimizer state with its ledger, and the
  curve so far. Its files stay on the machine.

Several processes may work on the same files: `claimed` gives a training to one of them.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Identity:
    """The settings of a training as text, and its seed."""

    settings: str
    seed: int

    @property
    def run(self) -> str:
        """A short name for the settings."""
        return hashlib.sha256(self.settings.encode()).hexdigest()[:10]

    def value(self, key: str) -> str | None:
        """One of the settings."""
        pairs = (part.partition("=") for part in self.settings.split("; "))
        return next((value for name, _, value in pairs if name == key), None)


# Finished trainings -------------------------------------------------------

_NUMBERS: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "epoch": int,
    "step": int,
    "accuracy": float,
    "training_accuracy": float,
    "epsilon": float,
    "published_epsilon": float,
    "processor_s": float,
}
_COLUMNS = ("run", *_NUMBERS, "settings")


class FinishedRuns:
    """The CSV of a figure's finished trainings; without a path, in memory only.

    Columns: `run` (a short name for the settings), `seed`, `epoch` (empty between
    epochs), `step`, the accuracies, both epsilons (at the end of epochs), `processor_s`
    (processor time since the training began, of all cores), and `settings`, in the
    first row of each training.

    Args:
        path: The file, or `None`.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._curves: dict[Identity, list[dict]] = {}
        # Those that were added here, with all their digits.
        self._own: dict[Identity, list[dict]] = {}
        self.read_again()

    def curve(self, identity: Identity, epochs: int) -> list[dict] | None:
        """The evaluations of the first epochs, if that many are finished."""
        return first_epochs(self._curves.get(identity, []), epochs)

    def add(self, identity: Identity, curve: Sequence[dict]) -> None:
        """Adds a training, or puts it in place of a shorter one."""
        self._own[identity] = self._curves[identity] = list(curve)
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self._path.parent):
            self.read_again()  # Another process may have finished one.
            self._write()

    def _write(self) -> None:
        unfinished = self._path.with_suffix(".part")
        with open(unfinished, "w", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
            writer.writeheader()
            for one, rows in self._curves.items():
                settings = one.settings
                for row in rows:
                    values = {key: _cell(row[key]) for key in row}
                    names = {"run": one.run, "seed": one.seed, "settings": settings}
                    writer.writerow({**values, **names})
                    settings = ""
        _replace(unfinished, self._path)

    def read_again(self) -> None:
        """Reads what other processes have finished."""
        if self._path is None or not self._path.exists():
            return
        self._curves = {}
        identities: dict[tuple[str, int], Identity] = {}
        with open(self._path, newline="") as file:
            for row in csv.DictReader(file):
                key = row["run"], int(row["seed"])
                if row["settings"]:
                    identities[key] = Identity(row["settings"], key[1])
                self._curves.setdefault(identities[key], []).append(
                    {
                        name: number(row[name]) if row[name] else None
                        for name, number in _NUMBERS.items()
                        if name != "seed"
                    }
                )
        for identity, curve in self._own.items():
            if len(curve) >= len(self._curves.get(identity, ())):
                self._curves[identity] = curve


def first_epochs(curve: Sequence[dict], epochs: int) -> list[dict] | None:
    """The rows up to the end of an epoch, or `None` if it was not reached."""
    for index, row in enumerate(curve):
        if row["epoch"] == epochs:
            return list(curve[: index + 1])
    return None


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _replace(source: Path, target: Path) -> None:
    """Puts a file in place that is on the disk in full."""
    with open(source, "rb") as file:
        os.fsync(file.fileno())
    source.replace(target)


# Several processes --------------------------------------------------------


@contextlib.contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Holds a file or a folder, or yields false; a kill lets go of it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def claimed(directory: Path | None, wait: bool = False) -> Iterator[bool]:
    """Takes a training; yields false if another process has it.

    Args:
        directory: Of its checkpoint, or `None` where nothing is shared.
        wait: Waits until the other process has finished it, or was killed.
    """
    if directory is None:
        yield True
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, which goes away when the training is finished.
    lock = directory.with_suffix(".lock")
    lock.touch()
    with _locked(lock, wait) as mine:
        yield mine


# Unfinished trainings -----------------------------------------------------


class Checkpoint:
    """A training at the end of an epoch: weights, optimizer, ledger and curve.

    `state.json` names the file of weights that it belongs to, and is replaced last: a
    kill at any moment leaves one of the two whole states.

    Args:
        directory: Where to, or `None` to save nothing.
    """

    def __init__(self, directory: Path | None):
        self._directory = directory

    def read(self) -> list[dict]:
        """The curve so far; empty if nothing was saved."""
        state = self._state()
        return state["curve"] if state else []

    def load(self, model: Any) -> None:
        """Gives the compiled, built model its weights, optimizer state and ledger."""
        state = self._state()
        if state is not None:
            model.load_weights(self._directory / state["weights"])

    def save(self, model: Any, curve: Sequence[dict]) -> None:
        """Saves both; call it at the end of an epoch."""
        if self._directory is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        weights = self._directory / f"epoch_{curve[-1]['epoch']}.weights.h5"
        model.save_weights(weights, overwrite=True)
        unfinished = self._directory / "state.part"
        unfinished.write_text(
            json.dumps({"weights": weights.name, "curve": list(curve)})
        )
        with open(weights, "rb") as file:
            os.fsync(file.fileno())
        _replace(unfinished, self._directory / "state.json")
        for other in self._directory.glob("*.weights.h5"):
            if other != weights:
                other.unlink()

    def remove(self) -> None:
        """Removes what a finished training needs no more."""
        if self._directory is not None and self._directory.exists():
            for file in self._directory.iterdir():
                file.unlink()
            self._directory.rmdir()

    def _state(self) -> dict | None:
        path = self._directory and self._directory / "state.json"
        if path is None or not path.exists():
            return None
        return json.loads(path.read_text())
