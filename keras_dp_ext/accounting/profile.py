"""How large the coordinates of one bounded row can be: a histogram of magnitudes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# Rounding a magnitude up by a factor of at most 1 + _RATIO costs on average
# about _RATIO of the RDP, which for small shifts grows with the square.
_RATIO = 0.002
# Magnitudes below this part of the root mean square carry under 1e-4 of the
# squared norm, so that coarse bins are good enough for them.
_SMALL = 0.01
# Relative width of a grid that many profiles share.
_COMMON_RATIO = 0.001


@dataclasses.dataclass(frozen=True)
class Profile:
    """Bounds on the sorted magnitudes of a vector, grouped into equal ones.

    A vector `v` is *dominated* by a profile if the t-th largest `|v_i|` is at most
    the profile's t-th largest magnitude, for every t. The positions of the
    coordinates play no role, since the noise is the same for all of them.

    Attributes:
        magnitudes: Distinct positive numbers in ascending order.
        counts: How many coordinates have each of them.

    Example:

    >>> Profile((0.5, 1.0), (12, 1)).l2_norm
    2.0
    """

    magnitudes: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        magnitudes = tuple(float(m) for m in self.magnitudes)
        counts = tuple(int(c) for c in self.counts)
        if (
            len(magnitudes) != len(counts)
            or any(not (0 < m < math.inf) for m in magnitudes)
            or any(b <= a for a, b in itertools.pairwise(magnitudes))
        ):
            raise ValueError(
                "Argument `magnitudes` must be positive, finite and ascending, one "
                f"for each count. Received: magnitudes={self.magnitudes}"
            )
        if any(c < 1 for c in counts):
            raise ValueError(
                "Argument `counts` must hold positive integers. "
                f"Received: counts={self.counts}"
            )
        object.__setattr__(self, "magnitudes", magnitudes)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def from_values(
        cls, values: Sequence[float], counts: Sequence[int] | None = None
    ) -> Profile:
        """The profile of a vector, each magnitude rounded up to a grid.

        The grid is relative (0.2%), so that the profile has at most about three
        thousand bins whatever the vector's length, and its RDP exceeds the exact
        one by about 0.2%.

        Args:
            values: The vector. Signs and order are ignored, as are zeros: the
                release of a coordinate that nobody shifts costs nothing.
            counts: How often each value occurs. Defaults to once.

        Raises:
            ValueError: If a value is not finite.
        """
        values = np.abs(np.asarray(values, np.float64)).ravel()
        multiplicity = (
            np.ones(values.shape, np.int64)
            if counts is None
            else np.asarray(counts, np.int64).ravel()
        )
        if values.shape != multiplicity.shape:
            raise ValueError(
                "Argument `counts` must have as many elements as `values`. "
                f"Received: counts of shape {multiplicity.shape}, "
                f"values of shape {values.shape}"
            )
        if not np.all(np.isfinite(values)):
            raise ValueError("Argument `values` must be finite. Received: NaN or Inf")
        values, multiplicity = values[values > 0], multiplicity[values > 0]
        if values.size == 0:
            return cls((), ())
        grid = _grid(values, multiplicity)
        bins = np.searchsorted(grid, values, side="left")
        totals = np.bincount(bins, weights=multiplicity, minlength=grid.size)
        used = totals > 0
        return cls(tuple(grid[used]), tuple(totals[used].astype(np.int64)))

    @property
    def size(self) -> int:
        """Number of coordinates that can be shifted."""
        return sum(self.counts)

    @property
    def l2_norm(self) -> float:
        """L2 norm of the largest vector that the profile dominates."""
        return math.sqrt(
            sum(c * m * m for m, c in zip(self.magnitudes, self.counts, strict=True))
        )

    def scaled(self, factor: float) -> Profile:
        """The profile of `factor` times the vector."""
        return Profile(tuple(factor * m for m in self.magnitudes), self.counts)

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary; `Profile(**dictionary)` turns it back."""
        return {"magnitudes": list(self.magnitudes), "counts": list(self.counts)}


def _grid(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Ascending grid whose last point is the greatest value."""
    distinct = np.unique(values)
    if distinct.size <= 64:
        return distinct
    # Scaled first: squares of denormal or huge values would leave float64.
    top = distinct[-1]
    rms = top * math.sqrt(np.average((values / top) ** 2, weights=counts))
    floor = min(top, _SMALL * rms)
    steps = math.ceil(math.log(top / floor) / math.log1p(_RATIO))
    relative = top * np.exp(-math.log1p(_RATIO) * np.arange(steps, -1, -1))
    relative[-1] = top
    linear = relative[0] * np.arange(1, 16) / 16
    return np.unique(np.concatenate([linear, relative]))


def common_grid(profiles: Sequence[Profile]) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes of all profiles, and `[profiles, magnitudes]` counts."""
    grid = np.unique(np.concatenate([profile.magnitudes for profile in profiles]))
    if grid.size > 2**14:
        top = math.log(grid[-1])
        steps = math.ceil((top - math.log(grid[0])) / _COMMON_RATIO)
        common = np.exp(top - _COMMON_RATIO * np.arange(steps, -1, -1))
        common[-1] = grid[-1]
        common = common[: np.searchsorted(common, grid[-1]) + 1]
        grid = np.unique(common[np.searchsorted(common, grid)])
    counts = np.zeros([len(profiles), grid.size])
    for row, profile in zip(counts, profiles, strict=True):
        # Rounded up where the grids differ.
        np.add.at(row, np.searchsorted(grid, profile.magnitudes), profile.counts)
    return grid, counts
