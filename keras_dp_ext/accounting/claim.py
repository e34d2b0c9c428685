"""What a mechanism says about one release, before sampling is considered."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from keras_dp_ext.accounting import events
from keras_dp_ext.accounting.events import Event
from keras_dp_ext.accounting.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Claim:
    """The proven cost of one release, and the published one beside it.

    Attributes:
        proven: The event that bounds what was executed.
        published: The event that the paper's accounting would use, or `None`
            where the paper claims exactly what is proven.
        caveat: Why the two differ, in plain words; shown as a warning.
        releases_per_lot: How many of the optimizer's releases see the same lot. If
            there are several, the events describe all of them together.
        published_conversion: How the paper turns RDP into epsilon, one of
            `conversion.CONVERSIONS`; `None` where no paper says.
    """

    proven: Event
    published: Event | None = None
    caveat: str | None = None
    releases_per_lot: int = 1
    published_conversion: str | None = None

    def without_proof(self) -> Claim:
        """The same, with an infinite epsilon as all that is proven."""
        published = self.proven if self.published is None else self.published
        nothing = events.GaussianRelease(0.0)
        return dataclasses.replace(self, proven=nothing, published=published)

    def between(self, start: int, stop: int) -> list[tuple[Claim, int]]:
        """The claims of releases `start` up to `stop`, each with its count.

        More than one only where the claim holds a `ScheduledRelease`.
        """
        cuts = sorted(cut for cut in self._changes if start < cut < stop)
        edges = [start, *cuts, stop]
        return [
            (self._at(first), last - first) for first, last in itertools.pairwise(edges)
        ]

    def sampled(
        self, sampling: Sampling, start: int, stop: int
    ) -> list[tuple[Claim, Sampling, int]]:
        """The same with their sampling, whose first release is `start`.

        What is counted are lots: the unit of sampling.
        """
        entries, done = [], 0
        for claim, releases in self.between(start, stop):
            count = math.ceil(releases / self.releases_per_lot)
            parts = sampling.windows(done, done + count)
            entries += [(claim, sampling, part) for part in parts if part > 0]
            done += count
        return entries

    def check_changes(self, sampling: Sampling, start: int) -> None:
        """Raises if a schedule changes within what `sampling` counts as one."""
        self.sampled(sampling, start, max([start, *self._changes]) + 1)

    def to_dp_event(self, sampling: Sampling, releases: int = 1) -> Any:
        """The first `releases` of this claim, proven, as a `dp_accounting.DpEvent`.

        See `dp_events.to_dp_event`, also for what it raises.
        """
        # The accountants import this file.
        from keras_dp_ext.accounting.dp_events import to_dp_event

        entries = self.sampled(sampling, 0, releases)
        return to_dp_event([(c.proven, s, count) for c, s, count in entries])

    @property
    def _changes(self) -> set[int]:
        """Release numbers from which on something else is released."""
        return {
            start
            for event in (self.proven, self.published)
            if isinstance(event, events.ScheduledRelease)
            for start in event.starts
        }

    def _at(self, release: int) -> Claim:
        def one(event: Any) -> Any:
            scheduled = isinstance(event, events.ScheduledRelease)
            return event.at(release) if scheduled else event

        return dataclasses.replace(
            self, proven=one(self.proven), published=one(self.published)
        )

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `Claim.deserialize` turns back."""
        return {
            "proven": self.proven.serialize(),
            "published": self.published and self.published.serialize(),
            "caveat": self.caveat,
            "releases_per_lot": self.releases_per_lot,
            "published_conversion": self.published_conversion,
        }

    @classmethod
    def deserialize(cls, config: Mapping[str, Any]) -> Claim:
        """The claim with this `serialize`."""
        published = config["published"]
        return cls(
            events.get(config["proven"]),
            published and events.get(published),
            config["caveat"],
            config.get("releases_per_lot", 1),
            config.get("published_conversion"),
        )


def lot_claim(parts: Sequence[tuple[Claim, int]], releases_per_lot: int) -> Claim:
    """One claim for all releases that see the same lot.

    Gaussian releases of one lot are one release with the inverse variances added,
    amplified once. For other noise no amplification of several releases is known:
    they count as if every example took part.

    Args:
        parts: The claim of one release, and how often it is made on the lot.
        releases_per_lot: How many of them the optimizer counts that keeps the ledger.

    Raises:
        ValueError: If a claim depends on the number of its release.
    """
    caveats = dict.fromkeys(claim.caveat for claim, _ in parts if claim.caveat)
    published = None
    if any(claim.published for claim, _ in parts):
        published = _composed([(c.published or c.proven, n) for c, n in parts])
    return Claim(
        _composed([(claim.proven, count) for claim, count in parts]),
        published,
        " ".join(caveats) or None,
        releases_per_lot,
        next(
            (c.published_conversion for c, _ in parts if c.published_conversion), None
        ),
    )


def _composed(parts: Sequence[tuple[Event, int]]) -> Event:
    flat: list[Event] = []
    for event, count in parts:
        if isinstance(event, events.ScheduledRelease):
            raise ValueError(
                "A noise schedule is not supported where a training step makes several "
                "private updates on one lot: use the same noise in every release. "
                f"Received: {event}"
            )
        if event.is_run:
            raise ValueError(
                "Correlated noise is not supported where a training step makes several "
                "private updates on one lot: use independent noise. "
                f"Received: {event}"
            )
        inner = event.events if isinstance(event, events.ComposedRelease) else (event,)
        flat += count * [_as_gaussian(single) for single in inner]
    if not all(
        isinstance(event, (events.GaussianRelease, events.FullBatchRelease))
        for event in flat
    ):
        flat = [
            event
            if isinstance(event, events.FullBatchRelease)
            else events.FullBatchRelease(event)
            for event in flat
        ]
    return events.ComposedRelease(tuple(flat))


def _as_gaussian(event: Event) -> Event:
    convert = getattr(event, "as_gaussian", None)
    return (convert and convert()) or event
