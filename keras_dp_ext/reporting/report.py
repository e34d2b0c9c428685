"""`dp.report(model, "report.html")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_dp_ext.reporting import page
from keras_dp_ext.reporting.record import of_model


def report(
    model: Any,
    path: str | Path,
    delta: float | None = None,
    accountant: str | None = None,
    history: Any = None,
    attack: Any = None,
    title: str | None = None,
) -> Path:
    """Writes a privacy report that can be handed on: one page, with nothing to load.

    It holds the statement, epsilon over the epochs beside the metrics of the
    validation data (those of the training data are exact, and left out), what an attack
    can and did achieve, noise and lots, versions, and the ledger for a reviewer.

    Args:
        model: A model that was trained with a private optimizer.
        path: The `.html` file.
        delta: Target delta; by default that of the last `PrivacyAccountant` with which
            the model was trained in this process.
        accountant: "rdp" or "pld"; likewise.
        history: What `fit` returned; by default that of the last training.
        attack: A result of `dp.audit.membership_inference`, if there is one.
        title: Heading; by default the model's name.

    Returns:
        The path.

    Raises:
        ValueError: If the optimizer is not private, or delta is not known.
    """
    record = of_model(model, delta, accountant, history, attack, title)
    path = Path(path)
    path.write_text(page.compose(record), encoding="utf-8")
    return path
