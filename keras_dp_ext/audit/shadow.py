"""Shadow models: how a model behaves with and without an example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Shadow:
    """A model that was trained like the target, on data that the attacker knows.

    Attributes:
        model: The trained model.
        included: `[N]` booleans: which of the attacked examples (members first,
            then non-members) were in its training data.
    """

    model: keras.Model
    included: np.ndarray


def train_shadows(
    train: Callable[[np.ndarray, np.ndarray], keras.Model],
    x: np.ndarray,
    y: np.ndarray,
    count: int = 8,
    seed: int = 0,
    verbose: int = 1,
) -> list[Shadow]:
    """Trains shadow models, each on a random half of the attacked examples.

    Halves come in complementary pairs, so that every example has as many models
    with it as without it if `count` is even.

    Args:
        train: `train(x, y)` returns a trained and compiled model.
        x: Inputs of members, then of non-members.
        y: Their targets.
        count: How many models.
        seed: Of the halves.
        verbose: 0 for no progress bar.

    Returns:
        One `Shadow` for each model.
    """
    random = np.random.default_rng(seed)
    progress: Any = keras.utils.Progbar(count, verbose=verbose, unit_name="shadow")
    shadows: list[Shadow] = []
    for number in range(count):
        if number % 2 == 0:
            included = random.permutation(len(x)) < len(x) / 2
        else:
            included = ~included
        shadows.append(Shadow(train(x[included], y[included]), included))
        progress.update(number + 1)
    return shadows
