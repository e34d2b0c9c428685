"""One trial: runs of the rules and of the ordinary backward pass on the same data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.agreement import difference, largest
from keras_dp_ext.verification.probe_functions import GradientResult, ProbeFunctions

# A row that is as large a part of a sum shows its own errors there: of a third of what
# must be noticed (`agreement`).
_VISIBLE = 0.3


class Trial:
    """Results for weights of the losses and coefficients of the sums, when needed.

    Weights `r` are powers of two of both signs. To multiply by them is exact, so that
    row b of one backward pass is exactly `r_b` times that of another one, and only
    the final sums are rounded differently.

    Args:
        functions: The step as functions.
        data: A value for each source.
        rows: Number of microbatches.
        row: The one to look at by itself.
        generator: Of random choices.
    """

    def __init__(
        self,
        functions: ProbeFunctions,
        data: Sequence[tf.Tensor],
        rows: int,
        row: int,
        generator: np.random.Generator,
    ):
        self._functions = functions
        self._data = data
        self.row = row
        self._ones = np.ones(rows, np.float32)
        self._alone = np.zeros(rows, np.float32)
        self._alone[row] = 1.0
        # Different for rows that are near each other: one taken for the other shows.
        powers = np.arange(rows) % 7 - 3
        powers = np.exp2(generator.permutation(powers)).astype(np.float32)
        # The row that is looked at weighs most, so that the sums show its errors, too.
        heaviest = int(np.argmax(powers))
        powers[[row, heaviest]] = powers[[heaviest, row]]
        self.r = powers * generator.choice([-1, 1], rows).astype(np.float32)
        self._results: dict[tuple[str, bool], GradientResult] = {}
        self.scales = functions.draw_scales(generator)

    def _run(
        self,
        weights: Any,
        coefficients: Any,
        double: bool,
        data: Sequence[tf.Tensor] | None = None,
    ) -> GradientResult:
        data = self._data if data is None else data
        return self._functions.gradients(
            data, weights, coefficients, self.scales, double
        )

    def _once(
        self, what: str, weights: Any, coefficients: Any, double: bool
    ) -> GradientResult:
        if (what, double) not in self._results:
            self._results[what, double] = self._run(weights, coefficients, double)
        return self._results[what, double]

    def plain(self, double: bool = False) -> GradientResult:
        """Sums with coefficients `r`, norms."""
        if ("plain", double) not in self._results:
            result = self._run(self._ones, self.r, double)
            # Nobody asks for its ordinary gradient, which is as large as the model.
            self._results["plain", double] = dataclasses.replace(result, truth=[])
        return self._results["plain", double]

    def weighted(self, double: bool = False) -> GradientResult:
        """The ordinary gradient with weights `r`; of the sums, one row only."""
        return self._once("weighted", self.r, self._alone, double)

    def picked(self, double: bool = False) -> GradientResult:
        """The sum with a coefficient for one row only."""
        return self._once("picked", self._ones, self._alone, double)

    def single(self, double: bool = False) -> GradientResult:
        """The ordinary gradient of one row."""
        return self._once("single", self._alone, self._ones, double)

    def row_by_rules(self) -> list[np.ndarray] | None:
        """`r` times the gradient of the row as the rules sum it up, without a run.

        For norms, once the sums have been compared with the truth: rules that give
        the right sum for weights `r` give each row its own gradient. `None` where the
        row is so small a part of a sum that an error of it might not have shown.
        """
        result = self.weighted()
        pairs = list(zip(result.sums[0], result.truth, strict=True))
        if any(largest(row) < _VISIBLE * largest(total) for row, total in pairs):
            return None
        return result.sums[0]

    def picked_from(self, data: Sequence[tf.Tensor]) -> GradientResult:
        """The sum with a coefficient for one row only, for other data."""
        return self._run(self._ones, self._alone, False, data)

    def rounding(self, place: int, double: bool = False) -> float:
        """How far rounding moves the gradient of a variable, as measured."""
        once = self.weighted(double)
        thrice = self._once("thrice", 3 * self.r, self._alone, double)
        pairs = [(thrice.truth, once.truth), *zip(thrice.sums, once.sums, strict=True)]
        return max(difference(a[place] / 3, b[place]) for a, b in pairs)

    def is_finite(self) -> bool:
        return self.weighted().is_finite()
