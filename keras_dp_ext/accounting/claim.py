"""What a mechanism says about one release, before sampling is considered."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
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
    """

    proven: Event
    published: Event | None = None
    caveat: str | None = None

    def between(self, start: int, stop: int) -> list[tuple[Claim, int]]:
        """The claims of releases `start` up to `stop`, each with its count.

        More than one only where the claim holds a `ScheduledRelease`.
        """
        scheduled = [
            event
            for event in (self.proven, self.published)
            if isinstance(event, events.ScheduledRelease)
        ]
        cuts = {
            cut for event in scheduled for cut in event.starts if start < cut < stop
        }
        edges = [start, *sorted(cuts), stop]
        return [
            (self._at(first), last - first) for first, last in itertools.pairwise(edges)
        ]

    def sampled(
        self, sampling: Sampling, start: int, stop: int
    ) -> list[tuple[Claim, Sampling, int]]:
        """The same with their sampling, whose first release is `start`."""
        entries, done = [], 0
        for claim, count in self.between(start, stop):
            parts = sampling.windows(done, done + count)
            entries += [(claim, sampling, part) for part in parts if part > 0]
            done += count
        return entries

    def _at(self, release: int) -> Claim:
        def one(event):
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
        }

    @classmethod
    def deserialize(cls, config: Mapping[str, Any]) -> Claim:
        """The claim with this `serialize`."""
        published = config["published"]
        return cls(
            events.get(config["proven"]),
            published and events.get(published),
            config["caveat"],
        )
