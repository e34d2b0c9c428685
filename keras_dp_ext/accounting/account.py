"""What a ledger holds, as a plain value: its records, their union, their format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from keras_dp_ext.accounting.records import OneOff, Segment, longest
from keras_dp_ext.accounting.sampling import Sampling, Unknown

#: The format of `Account.serialize`. The first had neither version nor ids.
FORMAT_VERSION = 2


@dataclasses.dataclass
class Account:
    """Everything that was released about one data set, and what is said about it.

    How many releases the last segment has is not in it: `total`, the optimizer's
    counter of releases, tells.

    Attributes:
        segments: The optimizer's releases, in order.
        one_offs: Releases outside of the optimizer's counter.
        uncovered: What has used the data and is not in the account.
        assumed: What the figures rest on without verification.
    """

    segments: list[Segment] = dataclasses.field(default_factory=list)
    one_offs: list[OneOff] = dataclasses.field(default_factory=list)
    uncovered: list[str] = dataclasses.field(default_factory=list)
    assumed: list[str] = dataclasses.field(default_factory=list)

    def streams(self, total: int) -> dict[str, OneOff]:
        """All that was released, by the id of its stream."""
        ends = [*(segment.start for segment in self.segments[1:]), total]
        counted = [
            OneOff(s.claim, s.sampling, end - s.start, id=s.id, start=s.start)
            for s, end in zip(self.segments, ends, strict=False)
        ]
        return longest([*self.one_offs, *counted])

    def check_total(self, total: int) -> None:
        """Refuses a counter of releases that does not fit the segments."""
        starts = [segment.start for segment in self.segments]
        if (starts and total < starts[-1]) or total < 0:
            raise ValueError(
                "Argument `total_releases` must not lie before the last segment, "
                f"which starts at {starts[-1] if starts else 0}. "
                f"Received: total_releases={total}"
            )
        if total > 0 and (not starts or starts[0] > 0):
            raise ValueError(
                f"{starts[0] if starts else total} releases are in no segment of the "
                "ledger, and their cost is unknown. Train with "
                "`PrivacyAccountant` from the first step on, or call "
                "`optimizer.declare_sampling(sampling)` before it. "
                f"Received: total_releases={total}"
            )

    def include(self, stream: OneOff, known: Mapping[str, OneOff]) -> None:
        """Adds a stream of which less, or nothing, is `known`."""
        if stream.id not in known or known[stream.id].count < stream.count:
            shorter = [o for o in self.one_offs if o.id != stream.id]
            self.one_offs = [*shorter, stream]

    def add_notes(
        self, *, uncovered: Iterable[str] = (), assumed: Iterable[str] = ()
    ) -> None:
        """Adds to what is uncovered or assumed; each note stands once."""
        for notes, new in ((self.uncovered, uncovered), (self.assumed, assumed)):
            notes += [note for note in dict.fromkeys(new) if note not in notes]

    def add_notes_of(self, other: Account) -> None:
        self.add_notes(uncovered=other.uncovered, assumed=other.assumed)

    def declare(self, sampling: Sampling) -> None:
        """Puts a sampling in place of every unknown one."""
        every: tuple[list[Any], ...] = (self.segments, self.one_offs)
        for records in every:
            records[:] = [
                dataclasses.replace(record, sampling=sampling)
                if isinstance(record.sampling, Unknown)
                else record
                for record in records
            ]

    def caveats(self) -> list[str]:
        """The distinct caveats of all claims, in order."""
        records: list[OneOff | Segment] = [*self.one_offs, *self.segments]
        caveats = (r.claim.caveat for r in records if r.claim.caveat)
        return list(dict.fromkeys(caveats))

    def copy(self) -> Account:
        """The same records in lists of its own."""
        return Account(
            list(self.segments),
            list(self.one_offs),
            list(self.uncovered),
            list(self.assumed),
        )

    def union(
        self, total: int, other: Account, other_total: int
    ) -> tuple[Account, int]:
        """This account and another one, nothing twice; see `Ledger.including`."""
        own, theirs = self.streams(total), other.streams(other_total)
        goes_on = other_total >= total and _covers(theirs, own)
        if goes_on or total == 0:
            result, result_total, known, added = other.copy(), other_total, theirs, own
        else:
            result, result_total, known, added = self.copy(), total, own, theirs
        for stream in added.values():
            result.include(stream, known)
        result.add_notes_of(self)
        result.add_notes_of(other)
        return result, result_total

    # Format -------------------------------------------------------------------

    def serialize(self, total: int | None) -> dict[str, Any]:
        """What JSON can hold, with the counter if it is known."""
        return {
            "version": FORMAT_VERSION,
            "releases": total,
            "segments": [s.serialize() for s in self._worth_saving(total)],
            "one_offs": [o.serialize() for o in self.one_offs],
            "uncovered": self.uncovered,
            "assumed": self.assumed,
        }

    @classmethod
    def deserialize(cls, data: Mapping[str, Any]) -> tuple[Account, int | None]:
        """The account with this `serialize`, and its counter.

        Raises:
            ValueError: If a later version of this package has written it.
        """
        version = data.get("version", 1)
        if version > FORMAT_VERSION:
            raise ValueError(
                "The ledger was written by a later version of keras_dp_ext, and might "
                "hold costs that this one would overlook: update the package. "
                f"Received: version={version}"
            )
        account = cls(
            [Segment.deserialize(record) for record in data["segments"]],
            [OneOff.deserialize(record) for record in data["one_offs"]],
            list(data.get("uncovered", [])),
            list(data.get("assumed", [])),
        )
        return account, data.get("releases")

    def _worth_saving(self, total: int | None) -> list[Segment]:
        """All segments but a last one that repeats the one before and is empty.

        A ledger that is loaded opens that anew, with an id of its own.
        """
        if len(self.segments) > 1 and self.segments[-1].start == total:
            before, last = self.segments[-2:]
            if (before.claim, before.sampling) == (last.claim, last.sampling):
                return self.segments[:-1]
        return self.segments


def _covers(streams: Mapping[str, OneOff], others: Mapping[str, OneOff]) -> bool:
    """Whether all releases of `others` are among `streams`."""
    return all(
        id in streams and streams[id].count >= other.count
        for id, other in others.items()
    )
