"""One trial: runs of the rules and of the ordinary backward pass on the same data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification import scratch_memory
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
        self._norms: dict[bool, list[np.ndarray]] = {}
        self._row: Callable[[], list[np.ndarray] | None] = self._visible_row
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
        self, what: str, weights: Any, coefficients: Any, double: bool, *unused: str
    ) -> GradientResult:
        """The result of a run, without those of its parts that nobody asks for: each is
        as large as the model."""
        if (what, double) not in self._results:
            result = self._run(weights, coefficients, double)
            without: dict[str, Any] = {name: [] for name in unused}
            self._results[what, double] = dataclasses.replace(result, **without)
        return self._results[what, double]

    def plain(self, double: bool = False) -> GradientResult:
        """Sums with coefficients `r`, norms; no ordinary gradient."""
        if ("plain", double) not in self._results:
            result = self._once("plain", self._ones, self.r, double, "truth")
            # They wait for the ordinary gradient, of another run.
            sums = [list(map(scratch_memory.copied, one)) for one in result.sums]
            self._results["plain", double] = dataclasses.replace(result, sums=sums)
            self._norms[double] = result.norms_squared
        return self._results["plain", double]

    def norms_squared(self, double: bool = False) -> list[np.ndarray]:
        """`[rows]` for each time that norms were asked for."""
        if double not in self._norms:
            self.plain(double)
        return self._norms[double]

    def weighted(self, double: bool = False) -> GradientResult:
        """The ordinary gradient with weights `r`; of the sums, one row only."""
        return self._once("weighted", self.r, self._alone, double)

    def picked(self, double: bool = False) -> GradientResult:
        """The sum with a coefficient for one row only; no ordinary gradient."""
        return self._once("picked", self._ones, self._alone, double, "truth")

    def single(self, double: bool = False) -> GradientResult:
        """The ordinary gradient of one row; no sums."""
        return self._once("single", self._alone, self._ones, double, "sums")

    def keep_only_row(self) -> None:
        """Frees all results but those that norms are compared with.

        Others are computed again if they are asked for.
        """
        row = self._visible_row()
        self._results.clear()
        row = None if row is None else list(map(scratch_memory.copied, row))
        self._row = lambda: row

    def row_by_rules(self) -> list[np.ndarray] | None:
        """`r` times the gradient of the row as the rules sum it up, without a run.

        For norms, once the sums have been compared with the truth: rules that give
        the right sum for weights `r` give each row its own gradient. `None` where the
        row is so small a part of a sum that an error of it might not have shown.
        """
        return self._row()

    def _visible_row(self) -> list[np.ndarray] | None:
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
        # First what keeps the sums only: of the other one's results, those that are as
        # large as the model are then the last to come.
        self.plain()
        return self.weighted().is_finite()
