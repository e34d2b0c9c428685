"""The receiver operating characteristic of an attack's scores."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np


class Roc:
    """How an attack that thresholds scores trades its two errors.

    Args:
        positive: Scores of members. NaN counts as the lowest score.
        negative: Scores of non-members.

    Example:

    >>> roc = Roc(positive=[3, 4, 5], negative=[1, 2, 3])
    >>> round(roc.auc, 3), roc.true_positive_rate_at(0.0)
    (0.944, 0.6666666666666666)
    """

    def __init__(self, positive: np.ndarray, negative: np.ndarray):
        self.positive, self.negative = (
            np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf)
            for scores in (positive, negative)
        )
        if not self.positive.size or not self.negative.size:
            raise ValueError(
                "Arguments `positive` and `negative` must not be empty. Received: "
                f"{self.positive.size} and {self.negative.size} scores"
            )

    @functools.cached_property
    def _curve(self) -> tuple[np.ndarray, np.ndarray]:
        thresholds = np.unique(np.concatenate([self.positive, self.negative]))[::-1]

        def at_least(scores: np.ndarray) -> Any:
            ranked = np.sort(scores)
            below = np.searchsorted(ranked, thresholds, side="left")
            return np.append(0.0, (len(scores) - below) / len(scores))

        return at_least(self.negative), at_least(self.positive)

    @property
    def false_positive_rates(self) -> np.ndarray:
        """From 0 to 1, for falling thresholds."""
        return self._curve[0]

    @property
    def true_positive_rates(self) -> np.ndarray:
        """The TPR at each of `false_positive_rates`."""
        return self._curve[1]

    @property
    def auc(self) -> float:
        """Area under the curve: 0.5 is guessing, 1 is certainty."""
        heights = self.true_positive_rates
        middles = 0.5 * (heights[1:] + heights[:-1])
        return float(np.sum(np.diff(self.false_positive_rates) * middles))

    def true_positive_rate_at(self, false_positive_rate: float) -> float:
        """The greatest TPR at a FPR of at most `false_positive_rate`."""
        allowed = self.false_positive_rates <= false_positive_rate
        return float(np.max(self.true_positive_rates[allowed]))
