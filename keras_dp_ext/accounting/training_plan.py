"""A training in plain numbers: how many updates, and how their examples are drawn."""

from __future__ import annotations

import dataclasses
import math

from keras_dp_ext._checks import check_count, check_not_negative, check_one_of
from keras_dp_ext._names import SAMPLINGS
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Poisson,
    Sampling,
    Shuffled,
    WithReplacement,
    lots_per_epoch,
)


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """How often and on what a training will release something.

    Attributes:
        num_examples: Size of the training set.
        batch_size: (Expected) examples of one update.
        epochs: Passes over the data.
        steps: Number of updates, in place of epochs.
        sampling: One of `SAMPLINGS`: "poisson" as `dp.data.poisson_batches`,
            "shuffled" as arrays in `model.fit`, "balls-in-bins" as the function of this
            name, "cyclic-poisson" and "fixed-order" likewise, for correlated noise.
        overflow_delta: What samplers may add to delta in each step; balls in bins, in
            each pass.
        cycle: For "cyclic-poisson": how many groups take turns.
    """

    num_examples: int
    batch_size: int
    epochs: float | None = None
    steps: int | None = None
    sampling: str = "poisson"
    overflow_delta: float = 0.0
    cycle: int = 1

    def __post_init__(self) -> None:
        for name in ("num_examples", "batch_size"):
            check_count(name, getattr(self, name))
        if self.batch_size > self.num_examples:
            raise ValueError(
                "Argument `batch_size` must not exceed `num_examples`. Received: "
                f"batch_size={self.batch_size} of num_examples={self.num_examples}"
            )
        if self.epochs is not None and self.steps is not None:
            raise ValueError("Pass `epochs` or `steps`, not both.")
        if self.epochs is not None:
            check_not_negative("epochs", self.epochs)
        check_one_of("sampling", self.sampling, SAMPLINGS)

    @property
    def steps_per_epoch(self) -> int:
        """As the data pipelines of this package have it."""
        if self.sampling in ("poisson", "with-replacement", "balls-in-bins"):
            return lots_per_epoch(self.num_examples, self.batch_size)
        if self.sampling == "cyclic-poisson":
            cycles = self.num_examples / self.batch_size / self.cycle
            return max(1, round(cycles)) * self.cycle
        if self.sampling == "fixed-order":
            # At least one slot is padding.
            return math.ceil((self.num_examples + 1) / self.batch_size)
        # As in `model.fit`: the last batch may be smaller, but it is a batch.
        return math.ceil(self.num_examples / self.batch_size)

    @property
    def releases(self) -> int | None:
        """Number of updates; `None` if neither epochs nor steps are given."""
        if self.steps is not None:
            return self.steps
        if self.epochs is None:
            return None
        return math.ceil(self.epochs * self.steps_per_epoch)

    def required_releases(self) -> int:
        """Number of updates.

        Raises:
            ValueError: If it is not known.
        """
        if self.releases is None:
            raise ValueError("Argument `epochs` or `steps` is needed.")
        return self.releases

    @property
    def scheme(self) -> Sampling:
        """The sampling, as accountants understand it."""
        rate = self.batch_size / self.num_examples
        if self.sampling == "poisson":
            return Poisson(rate, overflow_delta=self.overflow_delta)
        if self.sampling == "shuffled":
            return Shuffled(self.steps_per_epoch, rate)
        if self.sampling == "with-replacement":
            return WithReplacement(self.batch_size, self.num_examples)
        if self.sampling == "balls-in-bins":
            return BallsInBins(
                self.steps_per_epoch, self.overflow_delta, steps_from_size=True
            )
        if self.sampling == "fixed-order":
            return FixedOrder(self.steps_per_epoch)
        if self.sampling == "cyclic-poisson":
            if self.cycle * rate > 1:
                raise ValueError(
                    "Argument `cycle` must be at most `num_examples / batch_size`: a "
                    "group has to fill a lot. "
                    f"Received: cycle={self.cycle} at {1 / rate:.4g}"
                )
            return CyclicPoisson(
                self.cycle * rate, self.cycle, overflow_delta=self.overflow_delta
            )
        return FullBatch()
