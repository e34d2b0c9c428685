"""Everything that was ever released about one data set, in order."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.dp_events import to_dp_event
from keras_dp_ext.accounting.figures import figure_entries, figure_epsilon
from keras_dp_ext.accounting.records import (
    LedgerEntry,
    OneOff,
    Segment,
    joined,
    longest,
    new_id,
)
from keras_dp_ext.accounting.sampling import Sampling, Unknown

#: The format of `Ledger.to_json`. The first had neither version nor ids.
FORMAT_VERSION = 2

_LEDGERS: weakref.WeakValueDictionary[int, Ledger] = weakref.WeakValueDictionary()


class Ledger:
    """An append-only account of releases on the same data.

    A training run opens a *segment* whenever the claim or the sampling changes.
    How many releases a segment has follows from where the next one starts and,
    for the last, from the optimizer's own counter of releases, which is
    checkpointed with the weights. A ledger therefore cannot fall behind: there is
    nothing to update at each step.

    `optimizer.ledger` is live: what is added to it is recorded, and it knows the
    optimizer's counter, so that `optimizer.ledger.epsilon(delta=1e-5)` is the whole
    question.

    Every segment has a random id. The same id in two ledgers means the same
    releases, as in two checkpoints of one training; equal settings alone do not.

    Args:
        counter: Returns the optimizer's counter of releases.

    Example:

    >>> from keras_dp_ext.accounting import Claim, GaussianRelease, Ledger, Poisson
    >>> ledger = Ledger()
    >>> ledger.open(0, Claim(GaussianRelease(1.1)), Poisson(0.01))
    >>> ledger.open(500, Claim(GaussianRelease(0.9)), Poisson(0.01))
    >>> [count for _, _, count in ledger.entries(total_releases=800)]
    [500, 300]
    """

    def __init__(self, counter: Callable[[], int] | None = None):
        self._counter = counter
        self._segments: list[Segment] = []
        self._one_offs: list[OneOff] = []
        self._uncovered: list[str] = []
        self._assumed: list[str] = []
        # This many segments are known from a file: another process may go on with
        # them, so that nothing is added to their ids here.
        self._sealed = 0
        self._lock = threading.RLock()
        _LEDGERS[id(self)] = self

    # Recording --------------------------------------------------------------

    def open(self, start_release: int, claim: Claim, sampling: Sampling) -> None:
        """Records how releases are made from `start_release` on.

        Opening what is open already changes nothing. Only for `Shuffled` data a
        start in the middle of an epoch is always kept: the new pass visits
        examples again that the unfinished one has visited.

        Args:
            start_release: Number of releases made before.
            claim: What each release from now on costs.
            sampling: How its examples are chosen.

        Raises:
            ValueError: If a segment that was opened later exists already.
        """
        start = int(start_release)
        with self._lock:
            if start < (self._segments[-1].start if self._segments else 0):
                raise ValueError(
                    "Argument `start_release` must not lie before the last segment. "
                    f"Received: start_release={start_release}, "
                    f"last={self._segments[-1:]}"
                )
            if self._segments and self._segments[-1].start == start:
                # Nothing was released under it.
                self._segments.pop()
                self._sealed = min(self._sealed, len(self._segments))
            last = self._segments[-1] if len(self._segments) > self._sealed else None
            if last and (last.claim, last.sampling) == (claim, sampling):
                epoch = getattr(sampling, "steps_per_epoch", 1)
                epoch *= claim.releases_per_lot
                if (start - last.start) % epoch == 0:
                    return
            self._segments.append(Segment(start, claim, sampling))

    def add(
        self,
        claim: Claim | OneOff,
        sampling: Sampling | None = None,
        count: int = 1,
        id: str | None = None,
    ) -> None:
        """Records `count` releases outside the optimizer's counter.

        Args:
            claim: What each of them costs; or a `OneOff`, which says it all, such as
                `layer.privacy_releases()` returns.
            sampling: How its examples were chosen.
            count: How many there are.
            id: A name for these releases, under which they count once however often
                they are added. By default each call adds new ones.
        """
        if count < 0 or count != int(count):
            raise ValueError(
                "Argument `count` must be a nonnegative integer. "
                f"Received: count={count}"
            )
        if isinstance(claim, OneOff):
            stream = claim
        elif isinstance(sampling, Sampling):
            stream = OneOff(claim, sampling, int(count), id=id or new_id())
        else:
            raise ValueError(
                "Argument `sampling` must be a `keras_dp_ext.accounting.Sampling`. "
                f"Received: sampling={sampling}"
            )
        with self._lock:
            self._include(stream, longest(self._one_offs))

    def add_uncovered(self, what: str) -> None:
        """Notes something on the same data that this account does not cover."""
        with self._lock:
            if what not in self._uncovered:
                self._uncovered.append(what)

    def add_assumption(self, what: str) -> None:
        """Notes something that the figures rest on and that nobody has verified."""
        with self._lock:
            if what not in self._assumed:
                self._assumed.append(what)

    def declare(self, sampling: Sampling) -> None:
        """States how the batches were drawn wherever nobody knew it.

        It is believed: the epsilon holds if it is true.
        """
        with self._lock:
            self.add_assumption(stated_sampling(sampling))
            for records in (self._segments, self._one_offs):
                records[:] = [
                    dataclasses.replace(record, sampling=sampling)
                    if isinstance(record.sampling, Unknown)
                    else record
                    for record in records
                ]

    # Figures ----------------------------------------------------------------

    def entries(self, total_releases: int | None = None) -> list[LedgerEntry]:
        """All releases, as triples of claim, sampling and count.

        Args:
            total_releases: The optimizer's counter, if the ledger does not know it.

        Raises:
            ValueError: If the counter lies before the last segment, or counts
                releases that no segment covers, or whose sampling is unknown: their
                cost would be lost.
        """
        with self._lock:
            streams = self._streams(self._total(total_releases)).values()
        unknown = sum(s.count for s in streams if isinstance(s.sampling, Unknown))
        if unknown:
            raise ValueError(
                f"{unknown} releases were made on batches of which nobody knows how "
                "they were drawn, so that their cost is unknown. If you know it, say "
                "`optimizer.ledger.declare(sampling)` with a "
                "`keras_dp_ext.accounting.Sampling`."
            )
        return joined([entry for stream in streams for entry in stream.entries()])

    def epsilon(
        self,
        total_releases: int | None = None,
        delta: float | None = None,
        accountant: str = "rdp",
        figure: str = "proven",
        **options: Any,
    ) -> float:
        """Epsilon of everything in the ledger.

        Args:
            total_releases: The optimizer's counter of releases. `optimizer.ledger`
                knows it.
            delta: Target delta.
            accountant: "rdp" or "pld".
            figure: "proven", what holds for what was executed; "published", what
                the papers' accounting prints; "if_poisson", what would be proven
                had each batch been a Poisson sample.
            **options: Passed on to the accountant (`conversion="classic"`).

        Returns:
            Epsilon, possibly infinite.
        """
        if delta is None:
            raise ValueError("Argument `delta` must be given. Received: delta=None")
        entries = self.entries(total_releases)
        return figure_epsilon(entries, figure, delta, accountant, **options)

    def to_dp_event(self, total_releases: int | None = None) -> Any:
        """All that is proven here as one `dp_accounting.DpEvent`, to check us by.

        See `dp_events.to_dp_event`, also for what it raises.
        """
        return to_dp_event(figure_entries(self.entries(total_releases), "proven"))

    def caveats(self) -> list[str]:
        """The distinct caveats of all claims, in order."""
        records = [*self._one_offs, *self._segments]
        caveats = (r.claim.caveat for r in records if r.claim.caveat)
        return list(dict.fromkeys(caveats))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order."""
        return tuple(self._segments)

    @property
    def one_offs(self) -> tuple[OneOff, ...]:
        """The releases outside the optimizer's counter."""
        return tuple(self._one_offs)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """What is known to have used the data, and is not in the account."""
        return tuple(self._uncovered)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the figures rest on that nobody has verified."""
        return tuple(self._assumed)

    # Saving -----------------------------------------------------------------

    def to_json(self) -> str:
        """The ledger as a JSON string, with the counter if it knows it."""
        with self._lock:
            total = None if self._counter is None else self._counter()
            return json.dumps(
                {
                    "version": FORMAT_VERSION,
                    "releases": total,
                    "segments": [s.serialize() for s in self._worth_saving(total)],
                    "one_offs": [o.serialize() for o in self._one_offs],
                    "uncovered": self._uncovered,
                    "assumed": self._assumed,
                },
                allow_nan=False,
            )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger with this `to_json`.

        Raises:
            ValueError: If a later version of this package has written it.
        """
        data = json.loads(text)
        version = data.get("version", 1)
        if version > FORMAT_VERSION:
            raise ValueError(
                "The ledger was written by a later version of keras_dp_ext, and might "
                "hold costs that this one would overlook: update the package. "
                f"Received: version={version}"
            )
        total = data.get("releases")
        ledger = cls(None if total is None else lambda: total)
        ledger._segments = [Segment.deserialize(r) for r in data["segments"]]
        ledger._one_offs = [OneOff.deserialize(r) for r in data["one_offs"]]
        ledger._uncovered = list(data.get("uncovered", []))
        ledger._assumed = list(data.get("assumed", []))
        ledger._sealed = len(ledger._segments)
        return ledger

    def __reduce__(self):
        return Ledger.from_json, (self.to_json(),)

    # Several ledgers --------------------------------------------------------

    @classmethod
    def merge(cls, ledgers: Iterable[Ledger | tuple[Ledger, int]]) -> Ledger:
        """One ledger for several models that were trained on the same data.

        Models that share a part of their past (two checkpoints of one training, two
        trainings that began with the same one) share its cost.

        Args:
            ledgers: Optimizers' ledgers, or pairs of a ledger and its counter of
                releases.

        Returns:
            A ledger whose `epsilon(delta=...)` covers all of them.
        """
        merged = cls(lambda: 0)
        for item in ledgers:
            ledger, total = item if isinstance(item, tuple) else (item, None)
            for stream in ledger._streams(ledger._total(total)).values():
                merged._include(stream, longest(merged._one_offs))
            merged._add_notes(ledger)
        return merged

    def including(
        self, total_releases: int, other: Ledger, other_total: int
    ) -> tuple[Ledger, int]:
        """This ledger and another one of the same optimizer's past, nothing twice.

        Where one continues the other, it is the longer one. Where they part, as when
        the weights of another training are loaded, both have been spent: this
        ledger goes on, and what the other has released is added to it.

        Args:
            total_releases: The counter of releases that belongs to this ledger.
            other: The ledger of a checkpoint, say.
            other_total: The counter that belongs to it.

        Returns:
            The ledger that covers both, and its counter.
        """
        own, theirs = self._streams(total_releases), other._streams(other_total)
        goes_on = other_total >= total_releases and _covers(theirs, own)
        if goes_on or total_releases == 0:
            result, total, known, added = other._copy(), other_total, theirs, own
        else:
            result, total, known, added = self._copy(), total_releases, own, theirs
        for stream in added.values():
            result._include(stream, known)
        result._add_notes(self)
        result._add_notes(other)
        return result, total

    def restore(self, saved: Ledger, saved_total: int) -> int:
        """Takes over what a checkpoint has spent, beside what is known already.

        What is released from now on has a new id: the training that wrote the
        checkpoint may go on with the old one.

        Returns:
            What the optimizer's counter must be set to.
        """
        with self._lock:
            now = self._segments[-1:]
            spent = self._counter() if self._counter else 0
            union, total = self.including(spent, saved, saved_total)
            self._segments = union._segments
            self._one_offs = union._one_offs
            self._uncovered, self._assumed = union._uncovered, union._assumed
            self._sealed = len(self._segments)
            # What is open here stays open, whatever the checkpoint used.
            for segment in now or self._segments[-1:]:
                self.open(total, segment.claim, segment.sampling)
            return total

    def _total(self, given: int | None) -> int:
        """The number of releases, checked against the segments."""
        if given is None:
            if self._counter is None and self._segments:
                raise ValueError(
                    "Argument `total_releases` must be given: this ledger belongs to "
                    "no optimizer. Received: total_releases=None"
                )
            given = self._counter() if self._counter else 0
        total = int(given)
        starts = [segment.start for segment in self._segments]
        if (starts and total < starts[-1]) or total < 0:
            raise ValueError(
                "Argument `total_releases` must not lie before the last segment, "
                f"which starts at {starts[-1] if starts else 0}. "
                f"Received: total_releases={given}"
            )
        if total > 0 and (not starts or starts[0] > 0):
            raise ValueError(
                f"{starts[0] if starts else total} releases are in no segment of the "
                "ledger, so that their cost is unknown. Train with "
                "`PrivacyAccountant` from the first step on, or call "
                "`optimizer.open_segment(sampling)` before it. "
                f"Received: total_releases={given}"
            )
        return total

    def _streams(self, total: int) -> dict[str, OneOff]:
        """All that was released, by the id of its stream."""
        with self._lock:
            ends = [*(segment.start for segment in self._segments[1:]), total]
            counted = [
                OneOff(s.claim, s.sampling, end - s.start, id=s.id, start=s.start)
                for s, end in zip(self._segments, ends, strict=False)
            ]
            return longest([*self._one_offs, *counted])

    def _include(self, stream: OneOff, known: dict[str, OneOff]) -> None:
        """Adds a stream of which less, or nothing, is known."""
        if stream.id not in known or known[stream.id].count < stream.count:
            shorter = [o for o in self._one_offs if o.id != stream.id]
            self._one_offs = [*shorter, stream]

    def _add_notes(self, other: Ledger) -> None:
        for what in other._uncovered:
            self.add_uncovered(what)
        for what in other._assumed:
            self.add_assumption(what)

    def _worth_saving(self, total: int | None) -> list[Segment]:
        """All segments but a last one that repeats the one before and is empty.

        Whoever loads the ledger opens that anew, with an id of its own.
        """
        *former, last = self._segments or [None]
        if former and last.start == total:
            before = former[-1]
            if (before.claim, before.sampling) == (last.claim, last.sampling):
                return former
        return self._segments

    def _copy(self) -> Ledger:
        copy = Ledger()
        copy._segments = list(self._segments)
        copy._one_offs = list(self._one_offs)
        copy._add_notes(self)
        copy._sealed = len(copy._segments)
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.to_json() == other.to_json()

    __hash__ = None

    def __repr__(self) -> str:
        return f"Ledger(segments={self._segments}, one_offs={self._one_offs})"


def stated_sampling(sampling: Sampling) -> str:
    """The assumption behind a sampling that somebody has stated."""
    return f"batches were drawn as was stated ({sampling.describe()})"


def _covers(streams: dict[str, OneOff], others: dict[str, OneOff]) -> bool:
    """Whether all releases of `others` are among `streams`."""
    return all(
        id in streams and streams[id].count >= other.count
        for id, other in others.items()
    )


def _part_from_the_parent() -> None:
    """A forked child goes on with a stream that its parent goes on with, too."""
    for ledger in list(_LEDGERS.values()):
        # Another thread of the parent may have held it; here it holds it for ever.
        ledger._lock = threading.RLock()
        if ledger._segments:
            last = ledger._segments[-1]
            ledger._segments[-1] = dataclasses.replace(last, id=new_id())


os.register_at_fork(after_in_child=_part_from_the_parent)
