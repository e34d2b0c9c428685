"""A recipe: what trains a model well under a budget, found once, kept here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings of a private training; noise is not among them, the budget sets it.

    Attributes:
        model: Name of a model in `presets.models.MODELS`.
        optimizer: Name of the Keras optimizer class that takes the private gradient.
        learning_rate: Learning rate of the first step.
        final_learning_rate: Learning rate of the last step, reached linearly; `None`
            keeps the first.
        epochs: Expected passes over the data.
        batch_size: Expected examples in a lot.
        optimizer_arguments: Further arguments of the Keras optimizer.
        mechanism_arguments: Arguments of the mechanism, such as its clip. For encoding
            `l2_norm_clip` means the norm of the codebook.
        mechanism: Name of the mechanism that the recipe was found for.
        tuned_for_epsilon: The budget that it was found for: less noise allows a
            higher learning rate.
        accountant: "rdp", or "pld": tighter, and slow for more than a few hundred
            updates.
    """

    model: str
    learning_rate: float
    epochs: int
    batch_size: int
    optimizer: str = "SGD"
    final_learning_rate: float | None = None
    optimizer_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mechanism_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mechanism: str = "dpsgd"
    tuned_for_epsilon: float = 3.0
    accountant: str = "rdp"
