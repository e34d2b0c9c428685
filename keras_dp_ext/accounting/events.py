"""What happened: frozen descriptions of private releases, without their cost."""

from __future__ import annotations

import abc
import bisect
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from keras_dp_ext import noise as noises
from keras_dp_ext._checks import check_starts
from keras_dp_ext._value import Value, deserialize
from keras_dp_ext.accounting.profile import Profile, common_grid
from keras_dp_ext.noise import Noise


class Event(Value, abc.ABC):
    """One release, as its mathematics sees it.

    Adjacency is add-or-remove one example. An event says nothing about how the
    examples were chosen (that is `Sampling`) nor how often it happened (`Ledger`).
    An accountant that meets an event which it does not know raises.
    """

    #: Whether releases one after the other are one run with common noise, whose cost
    #: is not the sum of theirs.
    is_run: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class GaussianRelease(Event):
    """A sum of rows of L2 norm at most 1, plus N(0, noise_multiplier**2 I).

    Rows of norm C with noise of standard deviation s are
    `GaussianRelease(s / C)`; where one example changes a row instead of adding
    it (microbatches of several examples) the sensitivity is 2 C and the event is
    `GaussianRelease(s / (2 * C))`.

    Args:
        noise_multiplier: Standard deviation over sensitivity. 0 means no privacy,
            infinity means that nothing is released.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        if not self.noise_multiplier >= 0:
            raise ValueError(
                "Argument `noise_multiplier` must be at least 0. "
                f"Received: noise_multiplier={self.noise_multiplier}"
            )
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))

    def get_config(self) -> dict[str, Any]:
        # JSON has no infinity; `float` reads the string back.
        value = self.noise_multiplier
        return {"noise_multiplier": value if math.isfinite(value) else str(value)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GaussianRelease:
        return cls(float(config["noise_multiplier"]))


@dataclasses.dataclass(frozen=True)
class NoiseRelease(Event):
    """A sum of rows, each dominated by one of `shifts`, plus noise per coordinate.

    Args:
        noise: The density, in the same absolute units as `shifts`.
        shifts: `Profile`s (or plain vectors). A row is dominated by one of them.
        replaced: Whether one example turns one row into another (microbatches of
            several examples) instead of adding a row. The shift is then the
            difference of two vectors that are dominated by (possibly different)
            profiles, with their coordinates in any positions.

    References:

    - Nasr, Shokri, Houmansadr (2020), Lemmas 4 and 5.
    """

    noise: Noise
    shifts: tuple[Profile, ...]
    replaced: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", noises.get(self.noise))
        shifts = self.shifts
        if isinstance(shifts, Profile):
            shifts = (shifts,)
        profiles = tuple(
            shift if isinstance(shift, Profile) else Profile.from_values(shift)
            for shift in shifts
        )
        if not profiles:
            raise ValueError(
                "Argument `shifts` must hold at least one profile. "
                f"Received: shifts={self.shifts}"
            )
        object.__setattr__(self, "shifts", profiles)

    def magnitudes_and_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """`[bins]` ascending magnitudes, and how often each profile has them."""
        return common_grid(self.shifts)

    def as_gaussian(self) -> GaussianRelease | None:
        """The same release without coordinates, if the noise is Gaussian.

        Gaussian noise of one scale looks the same in every direction, so that
        only the largest L2 norm matters.
        """
        if not isinstance(self.noise, noises.Gaussian):
            return None
        sensitivity = max(profile.l2_norm for profile in self.shifts)
        sensitivity *= 2.0 if self.replaced else 1.0
        if sensitivity == 0:
            return GaussianRelease(math.inf)
        return GaussianRelease(self.noise.scale / sensitivity)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NoiseRelease:
        shifts = tuple(Profile(**shift) for shift in config["shifts"])
        return cls(noises.get(config["noise"]), shifts, config["replaced"])


@dataclasses.dataclass(frozen=True)
class CodebookRelease(Event):
    """A `NoiseRelease` whose profiles are the vectors of a codebook.

    It stores the codebook's recipe, a few numbers, instead of a thousand
    profiles; equal recipes give equal vectors everywhere.

    Args:
        noise: The density of every coordinate.
        codebook: A `keras_dp_ext.bounding.codebook.Codebook`.
        num_parameters: Number of trainable parameters.
        replaced: See `NoiseRelease`.
    """

    noise: Noise
    codebook: Any
    num_parameters: int
    replaced: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", noises.get(self.noise))

    def magnitudes_and_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """`[bins]` ascending magnitudes, and how often each vector has them."""
        return self.codebook.profiles(self.num_parameters)

    def as_gaussian(self) -> GaussianRelease | None:
        """See `NoiseRelease.as_gaussian`. Every vector has the codebook's norm."""
        if not isinstance(self.noise, noises.Gaussian):
            return None
        sensitivity = self.codebook.norm * (2.0 if self.replaced else 1.0)
        return GaussianRelease(self.noise.scale / sensitivity)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> CodebookRelease:
        from keras_dp_ext.bounding import codebook

        return cls(
            noises.get(config["noise"]),
            codebook.get(config["codebook"]),
            config["num_parameters"],
            config["replaced"],
        )


@dataclasses.dataclass(frozen=True)
class FullBatchRelease(Event):
    """A release in which every example takes part, whatever the sampling.

    For a mechanism that looks at the whole data set beside the batch, such as
    the weights `w` of Xiang et al., Algorithm 1.

    Args:
        event: What is released.
    """

    event: Event

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FullBatchRelease:
        return cls(get(config["event"]))


@dataclasses.dataclass(frozen=True)
class ComposedRelease(Event):
    """Several releases in one step; each may depend on the ones before it.

    Releases that see the same sampled batch share the randomness of the sampling,
    so that their amplified costs do not add up. At most one of them may be other
    than a `FullBatchRelease`, unless they are all Gaussian: Gaussian releases of
    the same rows are one release with the inverse variances added.

    Args:
        events: What is released.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        self.parts()

    def parts(self) -> tuple[Event, ...]:
        """Events whose costs add up."""
        full = tuple(e for e in self.events if isinstance(e, FullBatchRelease))
        sampled = tuple(e for e in self.events if not isinstance(e, FullBatchRelease))
        if len(sampled) < 2:
            return full + sampled
        if not all(isinstance(e, GaussianRelease) for e in sampled):
            raise ValueError(
                "Argument `events` must hold Gaussian releases only, where several "
                f"of them see the same batch. Received: events={self.events}"
            )
        multipliers = [e.noise_multiplier for e in sampled]  # type: ignore[attr-defined]
        if 0 in multipliers:
            return (*full, GaussianRelease(0.0))
        precision = sum(multiplier**-2 for multiplier in multipliers)
        merged = math.inf if precision == 0 else precision**-0.5
        return (*full, GaussianRelease(merged))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ComposedRelease:
        return cls(tuple(get(event) for event in config["events"]))


@dataclasses.dataclass(frozen=True)
class ScheduledRelease(Event):
    """Releases whose kind depends on their number, such as a noise schedule's.

    Args:
        starts: Ascending release numbers; the first is 0.
        events: What is released from each of them on; the last one stays.

    References:

    - Nasr, Shokri, Houmansadr (2020), Theorem 1: noises Z_1 ... Z_T.
    """

    starts: tuple[int, ...]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        starts = check_starts(self.starts, "events", self.events)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "events", tuple(self.events))

    def at(self, release: int) -> Event:
        """What release number `release` is, counted from 0."""
        return self.events[bisect.bisect_right(self.starts, release) - 1]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ScheduledRelease:
        return cls(config["starts"], tuple(get(event) for event in config["events"]))


@dataclasses.dataclass(frozen=True)
class CorrelatedRelease(Event):
    """One release of a run whose noise is correlated from release to release.

    n of them in a row are *one* run of n releases; two runs have independent noise.
    What a run costs depends on when an example may take part: see `correlated.py`.

    Args:
        noise_multiplier: The noise's scale over the norm of one row.
        noise: A `keras_dp_ext.noise.CorrelatedNoise`, of which the scale does not count.
    """

    is_run = True

    noise_multiplier: float
    noise: noises.CorrelatedNoise

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                "Argument `noise_multiplier` must be finite and at least 0. "
                f"Received: noise_multiplier={self.noise_multiplier}"
            )
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        noise = noises.get_any(self.noise)
        if not isinstance(noise, noises.CorrelatedNoise):
            raise ValueError(
                "Argument `noise` must be a `CorrelatedNoise`. "
                f"Received: noise={self.noise}"
            )
        object.__setattr__(self, "noise", noise.with_scale(1.0))


def get(identifier: Event | Mapping[str, Any]) -> Event:
    """The event that `identifier` stands for.

    Args:
        identifier: An `Event`, or a dictionary made by `Event.serialize`.

    Raises:
        ValueError: If `identifier` names no event.

    Example:

    >>> get(GaussianRelease(1.1).serialize())
    GaussianRelease(noise_multiplier=1.1)
    """
    return deserialize(Event, identifier, "event")
