"""What a privacy report says, before it is a page."""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_dp_ext.accounting.best_attack import BestAttack, from_epsilon

_PACKAGES = ("keras-dp-ext", "tensorflow", "keras", "numpy", "scipy", "dp-accounting")


@dataclasses.dataclass(frozen=True)
class Record:
    """All figures of a report.

    Attributes:
        title: Heading of the page.
        epsilon: Proven epsilon.
        delta: Its delta.
        releases: Number of noised updates.
        accountant: "rdp" or "pld".
        statement: The privacy statement.
        ledger: The ledger, as JSON.
        history: A row for each epoch: epoch, epsilon, and metrics of validation data.
            Metrics of the training data are exact, so they must not be in a report.
        published_epsilon: What the paper would print, if it differs.
        target_epsilon: The budget, if there was one.
        settings: Of the training, by name.
        attack: For each attack its true positive rate at some false positive rates.
        versions: Of the packages.
        best_attack: Bounds on all attacks; by default what follows from epsilon.
    """

    title: str
    epsilon: float
    delta: float
    releases: int
    accountant: str
    statement: str
    ledger: Mapping[str, Any]
    history: Sequence[Mapping[str, float]] = ()
    published_epsilon: float | None = None
    target_epsilon: float | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    attack: Mapping[str, Mapping[float, float]] = dataclasses.field(
        default_factory=dict
    )
    versions: Mapping[str, str] = dataclasses.field(default_factory=lambda: versions())
    best_attack: BestAttack | None = None

    def __post_init__(self) -> None:
        if self.best_attack is None:
            bounds = from_epsilon(self.epsilon, self.delta)
            object.__setattr__(self, "best_attack", bounds)

    def most_recognised(self, false_alarms: float) -> float:
        """The greatest share of the members that any attack can recognise."""
        known = self.best_attack.true_positive_rates
        if false_alarms not in known:
            known = from_epsilon(self.epsilon, self.delta, [false_alarms])
            known = known.true_positive_rates
        return known[false_alarms]


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def of_run(directory: str | Path) -> Record:
    """The record of a training by `keras-dp train`, from its files.

    Args:
        directory: Its output directory.

    Raises:
        ValueError: If there is no finished training.
    """
    directory = Path(directory)
    path = directory / "privacy.json"
    if not path.exists():
        raise ValueError(
            f"Argument `directory` must hold a training of `keras-dp train`, with "
            f"privacy.json in it. Received: {directory}"
        )
    privacy = json.loads(path.read_text())
    settings = _json(directory / "settings.json")
    published = privacy.get("published_epsilon")
    return Record(
        title=f"{settings.get('dataset', directory.name)}, "
        f"{settings.get('mechanism', 'private training')}",
        epsilon=float(privacy["epsilon"]),
        delta=privacy["delta"],
        releases=privacy["releases"],
        accountant=privacy["accountant"],
        statement=privacy["statement"],
        ledger=privacy["ledger"],
        history=read_history(directory / "history.csv"),
        published_epsilon=None if published is None else float(published),
        target_epsilon=privacy.get("target_epsilon"),
        settings={k: v for k, v in settings.items() if v not in (None, {}, [])},
        versions=privacy.get("versions") or versions(),
        best_attack=(
            BestAttack.deserialize(privacy["best_attack"])
            if "best_attack" in privacy
            else None
        ),
    )


def of_model(
    model: Any,
    delta: float | None = None,
    accountant: str | None = None,
    history: Any = None,
    attack: Any = None,
    title: str | None = None,
) -> Record:
    """The record of a trained model; see `report`."""
    from keras_dp_ext.callbacks import PrivacyAccountant
    from keras_dp_ext.callbacks.last_settings import settings_of

    last = settings_of(model)
    delta = last.get("delta") if delta is None else delta
    if delta is None:
        raise ValueError(
            "Argument `delta` is needed: this model was not trained with a "
            "`PrivacyAccountant` in this process. Received: delta=None"
        )
    figures = PrivacyAccountant(
        delta=delta, accountant=accountant or last.get("accountant", "rdp")
    )
    figures.set_model(model)
    optimizer = model.optimizer
    return Record(
        title=title or model.name,
        epsilon=figures.epsilon,
        delta=delta,
        releases=figures.releases,
        accountant=figures.accountant,
        statement=figures.statement(),
        ledger=json.loads(optimizer.ledger.to_json()),
        history=_rows(getattr(model, "history", None) if history is None else history),
        published_epsilon=figures.published_epsilon,
        target_epsilon=last.get("target_epsilon"),
        settings={"optimizer": type(optimizer).__name__, **_plain(optimizer)},
        attack=_rates(attack),
        best_attack=figures.best_attack,
    )


def _plain(optimizer: Any) -> dict[str, Any]:
    config = optimizer.get_config()
    return {
        name: value
        for name, value in config.items()
        if isinstance(value, (int, float, str)) and value not in (None, False)
    }


def _rows(history: Any) -> list[dict[str, float]]:
    """Epsilon and validation metrics of each epoch, out of a Keras `History`."""
    figures = getattr(history, "history", history) or {}
    kept = {
        name: values
        for name, values in figures.items()
        if name in ("epsilon", "published_epsilon") or name.startswith("val_")
    }
    length = len(kept.get("epsilon", ()))
    return [
        {"epoch": epoch + 1, **{n: float(v[epoch]) for n, v in kept.items()}}
        for epoch in range(length)
    ]


def read_history(path: Path) -> list[dict[str, float]]:
    """The lines of the history.csv of a training, without empty fields."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def _rates(attack: Any) -> dict[str, dict[float, float]]:
    """From a `MembershipInference` to rates, or as given."""
    if attack is None:
        return {}
    if hasattr(attack, "attacks"):
        return {
            name: {rate: roc.true_positive_rate_at(rate) for rate in (0.001, 0.01, 0.1)}
            for name, roc in attack.attacks.items()
        }
    return attack


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
