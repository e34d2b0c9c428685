"""How the examples of one release were chosen: what amplification assumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from keras_dp_ext._checks import check_count, check_in, check_one_of
from keras_dp_ext._value import Value, deserialize

#: Whom a guarantee can be about.
UNITS = ("example", "person")


@dataclasses.dataclass(frozen=True)
class Sampling(Value):
    """Base class. Each subclass is one sampling scheme.

    Attributes:
        unit: What is drawn, and protected: "example", or "person" where all rows of a
            person are drawn together and bounded together.
    """

    #: Whether it costs less because nobody knows who was chosen.
    amplifies: ClassVar[bool] = False

    unit: str = dataclasses.field(default="example", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_one_of("unit", self.unit, UNITS)

    @property
    def adjacency(self) -> str:
        """Which data sets count as neighbours, in plain words."""
        return f"add or remove one {self.unit}"

    @property
    def _zero_out(self) -> str:
        return f"zero-out: replace one {self.unit} by one that contributes nothing"

    def _public_size(self, what_follows: str) -> str:
        drawn = "people" if self.unit == "person" else "examples"
        return f"the number of {drawn}, from which {what_follows}, is public"

    def participations(self, releases: int) -> int:
        """In how many of `releases` one example can take part, at most."""
        return -(-releases // self.period)

    def windows(self, start: int, stop: int) -> list[int]:
        """Sizes of parts of releases `start` up to `stop`, to be counted apart.

        Release 0 begins a pass over the data. `participations` of a part is then
        right, wherever in a pass it begins.
        """
        return [stop - start]

    @property
    def period(self) -> int:
        """Only after a multiple of this many releases another pass may begin without
        coming closer to an example's last participation than usual."""
        return 1

    def in_any_order(self) -> Sampling:
        """A bound that holds for some of the releases, whichever these are.

        An example may have its participations just there: counts must not be divided
        by the length of a pass.
        """
        return self

    def if_poisson(self) -> Sampling:
        """Poisson sampling at the same rate, which the papers assume."""
        return self

    def describe(self) -> str:
        """One line in plain words, for reports."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Poisson(Sampling):
    """Every example is taken independently with probability `rate`.

    Attributes:
        rate: The probability `q` that one example takes part in one release.
        overflow_delta: What each release adds to delta because the lot has a
            fixed capacity (`data.poisson_batches` drops examples of a lot that
            overflows; the proof is in `data/sampling/capacity.py`): `rate` times the
            probability that the others fill the lot. An accountant must convert to
            epsilon at `delta - releases * overflow_delta`, or know better (`pld.py`).
        rate_from_size: Whether the rate was derived from the number of examples. It
            then changes if one is added, and what is proven is about neighbours of
            equal size.
    """

    amplifies = True

    rate: float
    overflow_delta: float = 0.0
    rate_from_size: bool = dataclasses.field(default=False, repr=False)

    @property
    def adjacency(self) -> str:
        if not self.rate_from_size:
            return super().adjacency
        return f"{self._zero_out} ({self._public_size('the sampling rate follows')})"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_in("rate", self.rate, "[0, 1]")
        check_in("overflow_delta", self.overflow_delta, "[0, 1]")
        object.__setattr__(self, "rate", float(self.rate))

    def describe(self) -> str:
        return f"Poisson sampling, each {self.unit} with probability {self.rate:.6g}"


@dataclasses.dataclass(frozen=True)
class WithReplacement(Sampling):
    """`batch_size` independent uniform draws from `num_examples` examples.

    Adjacency is zero-out: an example is replaced by one that contributes nothing,
    so that the number of examples stays public. One example can be drawn several
    times; see `keras_dp_ext.accounting.rdp` for what is proven.
    """

    amplifies = True

    batch_size: int
    num_examples: int

    @property
    def adjacency(self) -> str:
        return self._zero_out

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_examples", self.num_examples)
        check_count("batch_size", self.batch_size)

    def if_poisson(self) -> Sampling:
        return Poisson(min(1.0, self.batch_size / self.num_examples), unit=self.unit)

    def describe(self) -> str:
        return (
            f"{self.batch_size} draws with replacement from "
            f"{self.num_examples} examples"
        )


class _InPasses:
    """One participation in each pass over the data; mixed into a `Sampling`."""

    steps_per_epoch: int

    @property
    def period(self) -> int:
        return self.steps_per_epoch

    def in_any_order(self) -> Any:
        own: Any = self
        return dataclasses.replace(own, steps_per_epoch=1)


@dataclasses.dataclass(frozen=True)
class Shuffled(_InPasses, Sampling):
    """Batches of a reshuffled data set: one participation in every epoch.

    No amplification is proven. `rate` is kept to show, beside the proven figure,
    what Poisson sampling at the same rate would have given. Adjacency is
    zero-out: an example is replaced by one that contributes nothing, since with
    batches of fixed size adding one would move the others.
    """

    steps_per_epoch: int
    rate: float

    @property
    def adjacency(self) -> str:
        return self._zero_out

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps_per_epoch", self.steps_per_epoch)
        check_in("rate", self.rate, "[0, 1]")
        object.__setattr__(self, "rate", float(self.rate))

    def windows(self, start: int, stop: int) -> Any:
        # As many releases as an epoch has can hold the end of one pass and the
        # beginning of the next, and an example twice: they count apart.
        next_pass = -(-start // self.steps_per_epoch) * self.steps_per_epoch
        if start < next_pass < stop:
            return [next_pass - start, stop - next_pass]
        return [stop - start]

    def if_poisson(self) -> Sampling:
        return Poisson(self.rate, unit=self.unit)

    def describe(self) -> str:
        return (
            f"shuffled batches, {self.steps_per_epoch} releases in an epoch: one "
            "participation per epoch, no amplification"
        )


@dataclasses.dataclass(frozen=True)
class BallsInBins(_InPasses, Sampling):
    """Each example in one of the releases of a pass, independently and at random.

    Every pass draws anew. Amplifies Gaussian noise (`balls_in_bins.py`); other noise, and
    noise that changes within a pass, are refused.

    Attributes:
        steps_per_epoch: Releases in a pass: the bins.
        overflow_delta: What each pass adds to delta because lots have a fixed capacity.
        steps_from_size: Whether the number of releases was derived from the number of
            examples. What is proven is then about neighbours of equal size.
    """

    amplifies = True

    steps_per_epoch: int
    overflow_delta: float = 0.0
    steps_from_size: bool = dataclasses.field(default=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps_per_epoch", self.steps_per_epoch)
        check_in("overflow_delta", self.overflow_delta, "[0, 1]")

    @property
    def adjacency(self) -> str:
        if not self.steps_from_size:
            return super().adjacency
        return f"{self._zero_out} ({self._public_size('steps of a pass follow')})"

    def windows(self, start: int, stop: int) -> list[int]:
        if start % self.steps_per_epoch:
            # An example that was not in the first half of a pass is in the second one.
            raise ValueError(
                "What is released on balls in bins must stay the same for whole passes "
                f"of {self.steps_per_epoch} steps: let a noise schedule change between "
                "them, or train on `dp.data.poisson_batches`. Received: a change after "
                f"{start} steps"
            )
        return [stop - start]

    def if_poisson(self) -> Sampling:
        return Poisson(1.0 / self.steps_per_epoch, unit=self.unit)

    def describe(self) -> str:
        return (
            f"balls in bins, each {self.unit} in one of {self.steps_per_epoch} releases "
            "of a pass, at random"
        )


@dataclasses.dataclass(frozen=True)
class FixedOrder(_InPasses, Sampling):
    """The same batches in the same order in each pass over the data.

    An example takes part in every `steps_per_epoch`-th release, no more and no less: what
    correlated noise without amplification needs. For independent noise it costs as much
    as `Shuffled`. Adjacency is zero-out: an example is replaced by one that contributes
    nothing.

    Attributes:
        steps_per_epoch: Releases in a pass.
        order: A name for the order: two orders put an example in two places.
    """

    steps_per_epoch: int
    order: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps_per_epoch", self.steps_per_epoch)

    @property
    def adjacency(self) -> str:
        return self._zero_out

    def describe(self) -> str:
        return (
            f"batches in a fixed order, {self.steps_per_epoch} releases in a pass, no "
            "amplification"
        )


@dataclasses.dataclass(frozen=True)
class CyclicPoisson(Sampling):
    """Groups of examples take turns; of the one whose turn it is, a Poisson sample.

    The data are cut into `cycle` groups once. Release t takes each example of group
    t mod `cycle` with probability `rate`: every example may take part in every
    `cycle`-th release. Amplifies noise of at most `cycle` bands (`noise.Banded`).
    Adjacency is zero-out: the groups depend on the number of examples.

    Attributes:
        rate: The probability that an example of the group whose turn it is takes part:
            `cycle` times what it is for Poisson sampling with lots of the same size.
        cycle: How many groups there are.
        overflow_delta: What a release adds to delta; see `Poisson`.
        groups: A name for the groups: other groups give an example another turn.
    """

    amplifies = True

    rate: float
    cycle: int
    overflow_delta: float = 0.0
    groups: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("cycle", self.cycle)
        # Checks the rest, too.
        object.__setattr__(self, "rate", self.poisson().rate)

    @property
    def adjacency(self) -> str:
        return f"{self._zero_out} ({self._public_size('the groups follow')})"

    @property
    def period(self) -> int:
        return self.cycle

    def in_any_order(self) -> Sampling:
        return dataclasses.replace(self, cycle=1)

    def poisson(self) -> Poisson:
        """How the group whose turn it is is sampled."""
        return Poisson(self.rate, self.overflow_delta, unit=self.unit)

    def describe(self) -> str:
        return (
            f"cyclic Poisson sampling, {self.cycle} groups in turn, each {self.unit} with "
            f"probability {self.rate:.6g} in its turn"
        )


@dataclasses.dataclass(frozen=True)
class FullBatch(Sampling):
    """Every example takes part in every release."""

    def describe(self) -> str:
        return "the full data set in every release, no amplification"


@dataclasses.dataclass(frozen=True)
class Unknown(Sampling):
    """Nobody knows how the batches were drawn: no cost can be computed.

    An example may be in a batch several times, so that not even the full data set in
    every release is a bound.
    """

    def describe(self) -> str:
        return "unknown"


def lots_per_epoch(num_examples: int, batch_size: int) -> int:
    """How many random lots count as one epoch: together about as large as the data."""
    return max(1, round(num_examples / batch_size))


def get(identifier: Sampling | Mapping[str, Any]) -> Sampling:
    """The sampling that `identifier` stands for.

    Args:
        identifier: A `Sampling`, or a dictionary made by `Sampling.serialize`.

    Raises:
        ValueError: If `identifier` names no sampling.

    Example:

    >>> get(Poisson(0.01).serialize())
    Poisson(rate=0.01, overflow_delta=0.0)
    """
    return deserialize(Sampling, identifier, "sampling")
