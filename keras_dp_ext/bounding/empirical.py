"""The distribution of gradient magnitudes on public data (Nasr et al., Figure 1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class EmpiricalDistribution:
    """A symmetric distribution given by a histogram of magnitudes.

    The histogram becomes part of the codebook, which the adversary knows: it
    must come from *public* data.

    Args:
        edges: Ascending, non-negative bin edges; magnitudes are uniform in a bin.
        counts: One non-negative weight for each bin; not all zero.

    Example:

    >>> uniform = EmpiricalDistribution(edges=(0.0, 1.0), counts=(1,))
    >>> float(uniform.upper_quantile(0.25))
    0.5
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = tuple(float(edge) for edge in self.edges)
        counts = tuple(float(count) for count in self.counts)
        if (
            len(edges) != len(counts) + 1
            or not np.all(np.isfinite(edges))
            or edges[0] < 0
            or np.any(np.diff(edges) <= 0)
        ):
            raise ValueError(
                "Argument `edges` must be non-negative, finite and ascending, one "
                f"more than `counts`. Received: edges={self.edges}"
            )
        if min(counts) < 0 or not 0 < sum(counts) < np.inf:
            raise ValueError(
                "Argument `counts` must be non-negative and not all zero. "
                f"Received: counts={self.counts}"
            )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def from_gradients(
        cls, gradients: Sequence[np.ndarray], num_bins: int = 256
    ) -> EmpiricalDistribution:
        """The histogram of all entries of gradients on public data.

        Args:
            gradients: Arrays of any shapes, such as one for each variable.
            num_bins: Logarithmic bins over twelve decades below the maximum.
        """
        magnitudes = np.concatenate(
            [np.abs(np.asarray(array, np.float64)).ravel() for array in gradients]
        )
        top = magnitudes.max(initial=0.0)
        if not 0 < top < np.inf:
            raise ValueError(
                "Argument `gradients` must be finite and not all zero. "
                f"Received: gradients with greatest magnitude {top}"
            )
        edges = np.concatenate([[0.0], top * np.logspace(-12, 0, num_bins)])
        counts, _ = np.histogram(magnitudes, edges)
        return cls(tuple(edges), tuple(counts))

    def upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        """The x with `P(X > x) = tail`, for tails in (0, 1/2]."""
        # Survival of the magnitude at each edge, from the top, where it is 0.
        counts = np.asarray(self.counts)[::-1]
        survival = np.concatenate([[0.0], np.cumsum(counts)]) / np.sum(counts)
        return np.interp(2.0 * np.asarray(tail), survival, self.edges[::-1])

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary; see `Codebook`."""
        return {"class_name": type(self).__name__, "config": dataclasses.asdict(self)}


def is_empirical(identifier: Any) -> bool:
    """Whether `identifier` is a serialised `EmpiricalDistribution`."""
    return (
        isinstance(identifier, Mapping)
        and identifier.get("class_name") == EmpiricalDistribution.__name__
    )
