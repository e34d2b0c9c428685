"""The result of a mechanism audit: what is claimed, what is measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class MechanismAudit:
    """A lower bound on epsilon beside the epsilons that are claimed.

    Attributes:
        mechanism: Name of the mechanism.
        epsilon: Measured: with probability `confidence` the true one is no less.
        proven_epsilon: Claimed as proven.
        published_epsilon: Claimed by the paper.
        delta: Of all three.
        confidence: Of the measurement.
        method: How epsilon follows from the rates; see `threshold.Threshold`.
        true_positive_rate: Lower bound for the test that was used.
        false_positive_rate: Upper bound for that test.
        mu: Lower bound on the mu of Gaussian differential privacy, if used.
        runs: Independent runs of each of the two neighbours.
        steps: Releases in a run.
        sampling_rate: Probability that the example takes part in a release.
        num_parameters: Of the audited mechanism.
        scores: The adversary's scores without and with the example; for plots.
    """

    mechanism: str
    epsilon: float
    proven_epsilon: float
    published_epsilon: float
    delta: float
    confidence: float
    method: str
    true_positive_rate: float
    false_positive_rate: float
    mu: float | None
    runs: int
    steps: int
    sampling_rate: float
    num_parameters: int
    scores: tuple[np.ndarray, np.ndarray] = dataclasses.field(repr=False, compare=False)

    @property
    def proven_holds(self) -> bool:
        """Whether the measurement is compatible with the proven epsilon."""
        return self.epsilon <= self.proven_epsilon

    @property
    def published_holds(self) -> bool:
        """Whether the measurement is compatible with the published epsilon."""
        return self.epsilon <= self.published_epsilon

    @property
    def verdict(self) -> str:
        """In a word or two, for tables."""
        if not self.proven_holds:
            return "REFUTED"
        return "holds" if self.published_holds else "published REFUTED"

    def summary(self) -> dict[str, Any]:
        """Plain values for JSON, without the scores."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "scores"
        }
        return {**values, "verdict": self.verdict}
