"""The result of a one-run audit of a training."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class TrainingAudit:
    """A lower bound on the epsilon of a whole training, from one run of it.

    Attributes:
        epsilon: Measured: with probability `confidence` the true one is no less.
        proven_epsilon: What the optimizer's ledger claims; `None` if it has none.
        delta: Of both.
        confidence: Of the measurement.
        canaries: How many there were; about half of them in the training data.
        guesses: How many the adversary guessed in the best of its strategies.
        correct: How many of these were right.
        included: `[canaries]`, which were in the training data.
        scores: `[canaries]`, the adversary's belief that they were.
    """

    epsilon: float
    proven_epsilon: float | None
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int
    included: np.ndarray = dataclasses.field(repr=False, compare=False)
    scores: np.ndarray = dataclasses.field(repr=False, compare=False)

    @property
    def verdict(self) -> str:
        """In a word or two, for tables."""
        if self.proven_epsilon is None:
            return "no claim"
        return "holds" if self.epsilon <= self.proven_epsilon else "REFUTED"
