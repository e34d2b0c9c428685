"""How the examples of one release were chosen: what amplification assumes."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Base class. Each subclass is one sampling scheme, named by `kind`."""


@dataclasses.dataclass(frozen=True)
class Poisson(Sampling):
    """Every example is taken independently with probability `rate`.

    Attributes:
        rate: The probability `q` that one example takes part in one release.
        overflow_delta: What each release adds to delta because the lot has a
            fixed capacity (`data.poisson_batches` drops examples of a lot that
            overflows; the proof is in `data/capacity.py`). An accountant must
            convert to epsilon at `delta - releases * overflow_delta`.
    """

    rate: float
    overflow_delta: float = 0.0


@dataclasses.dataclass(frozen=True)
class WithReplacement(Sampling):
    """`batch_size` independent uniform draws from `num_examples` examples."""

    batch_size: int
    num_examples: int


@dataclasses.dataclass(frozen=True)
class Shuffled(Sampling):
    """Batches of a reshuffled data set: one participation in every epoch.

    No amplification is proven. `rate` is kept to show, beside the proven figure,
    what Poisson sampling at the same rate would have given.
    """

    steps_per_epoch: int
    rate: float


@dataclasses.dataclass(frozen=True)
class FullBatch(Sampling):
    """Every example takes part in every release."""
