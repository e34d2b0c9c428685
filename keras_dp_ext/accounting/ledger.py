"""Everything that was ever released about one data set, in order."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from keras_dp_ext._checks import check_count
from keras_dp_ext.accounting.account import Account
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.dp_events import to_dp_event
from keras_dp_ext.accounting.figures import figure_entries, figure_epsilon
from keras_dp_ext.accounting.records import (
    LedgerEntry,
    OneOff,
    Segment,
    check_one_unit,
    joined,
    longest,
    new_id,
)
from keras_dp_ext.accounting.sampling import FullBatch, Sampling, Shuffled, Unknown

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
        on_open: Called with the first release number of the segment that is open,
            whenever that may have changed. Correlated noise begins again there.

    Example:

    >>> from keras_dp_ext.accounting import Claim, GaussianRelease, Ledger, Poisson
    >>> ledger = Ledger()
    >>> ledger.open(0, Claim(GaussianRelease(1.1)), Poisson(0.01))
    >>> ledger.open(500, Claim(GaussianRelease(0.9)), Poisson(0.01))
    >>> [count for _, _, count in ledger.entries(total_releases=800)]
    [500, 300]
    """

    def __init__(
        self,
        counter: Callable[[], int] | None = None,
        on_open: Callable[[int], None] = lambda start: None,
    ):
        self._counter = counter
        self._account = Account()
        self._on_open = on_open
        # This many segments are known from a file: another process may go on with
        # them, so that nothing is added to their ids here.
        self._sealed = 0
        self._lock = threading.RLock()
        _LEDGERS[id(self)] = self

    # Recording --------------------------------------------------------------

    def open(self, start_release: int, claim: Claim, sampling: Sampling) -> None:
        """Records how releases are made from `start_release` on.

        Opening what is open already changes nothing. Only for `Shuffled` data,
        and others that are visited in passes, a start in the middle of a pass is
        always kept: the new pass visits examples again that the unfinished one has
        visited.

        Args:
            start_release: Number of releases made before.
            claim: What each release from now on costs.
            sampling: How its examples are chosen.

        Raises:
            ValueError: If a segment that was opened later exists already, or if the
                claim changes where this sampling has no bound.
        """
        start = int(start_release)
        claim.check_changes(sampling, start)
        with self._lock:
            segments = self._account.segments
            if start < (segments[-1].start if segments else 0):
                raise ValueError(
                    "Argument `start_release` must not lie before the last segment. "
                    f"Received: start_release={start_release}, "
                    f"last={segments[-1:]}"
                )
            if segments and segments[-1].start == start:
                # Nothing was released under it.
                segments.pop()
                self._sealed = min(self._sealed, len(segments))
            last = segments[-1] if len(segments) > self._sealed else None
            if last and (last.claim, last.sampling) == (claim, sampling):
                period = sampling.period * claim.releases_per_lot
                if (start - last.start) % period == 0:
                    self._on_open(last.start)
                    return
            segments.append(Segment(start, claim, sampling))
            self._on_open(start)

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
        check_count("count", count, least=0)
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
            self._account.include(stream, longest(self._account.one_offs))

    def add_uncovered(self, what: str) -> None:
        """Notes something on the same data that this account does not cover."""
        with self._lock:
            self._account.add_notes(uncovered=[what])

    def add_assumption(self, what: str) -> None:
        """Notes something that the figures rely on and that was not verified."""
        with self._lock:
            self._account.add_notes(assumed=[what])

    def declare(self, sampling: Sampling) -> None:
        """Says how batches were drawn, for all releases of which that is unknown.

        It is believed: epsilon holds if it is true.
        """
        if sampling.unit != "example":
            raise ValueError(
                "Argument `sampling` must have the unit `example`: the rows of these "
                "batches were bounded one by one, not person by person. Received: "
                f"sampling={sampling} with unit={sampling.unit}"
            )
        with self._lock:
            self.add_assumption(stated_sampling(sampling))
            self._account.declare(sampling)

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
            total = self._total(total_releases)
            streams = self._account.streams(total).values()
        unknown = sum(s.count for s in streams if isinstance(s.sampling, Unknown))
        if unknown:
            raise ValueError(
                f"The cost of {unknown} releases is unknown, because it was not recorded "
                "how their batches were drawn. If you know, call "
                "`optimizer.ledger.declare(sampling)` with a "
                "`keras_dp_ext.accounting.Sampling`."
            )
        entries = joined([entry for stream in streams for entry in stream.entries()])
        check_one_unit(sampling for _, sampling, _ in entries)
        return entries

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
            raise ValueError(
                "Argument `delta` must be given, by name: `ledger.epsilon(delta=1e-5)`. "
                "Received: delta=None"
            )
        entries = self.entries(total_releases)
        return figure_epsilon(entries, figure, delta, accountant, **options)

    def to_dp_event(self, total_releases: int | None = None) -> Any:
        """All that is proven here as one `dp_accounting.DpEvent`, to check our figures with.

        See `dp_events.to_dp_event`, also for what it raises.
        """
        return to_dp_event(figure_entries(self.entries(total_releases), "proven"))

    def caveats(self) -> list[str]:
        """The distinct caveats of all claims, in order."""
        return self._account.caveats()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order."""
        return tuple(self._account.segments)

    @property
    def one_offs(self) -> tuple[OneOff, ...]:
        """The releases outside the optimizer's counter."""
        return tuple(self._account.one_offs)

    @property
    def uncovered(self) -> tuple[str, ...]:
        """What is known to have used the data, and is not in the account."""
        return tuple(self._account.uncovered)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the figures rely on without verification."""
        return tuple(self._account.assumed)

    # Saving -----------------------------------------------------------------

    def to_json(self) -> str:
        """The ledger as a JSON string, with the counter if it knows it."""
        with self._lock:
            total = None if self._counter is None else self._counter()
            return json.dumps(self._account.serialize(total), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger with this `to_json`.

        Raises:
            ValueError: If a later version of this package has written it.
        """
        account, total = Account.deserialize(json.loads(text))
        return cls._of(account, None if total is None else lambda: total)

    def __reduce__(self) -> tuple[Any, ...]:
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
            account = ledger._snapshot()
            for stream in account.streams(ledger._total(total)).values():
                merged._account.include(stream, longest(merged._account.one_offs))
            merged._account.add_notes_of(account)
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
        own, theirs = self._snapshot(), other._snapshot()
        union, total = own.union(total_releases, theirs, other_total)
        return self._of(union), total

    def restore(self, saved: Ledger, saved_total: int) -> int:
        """Adds what a checkpoint has spent to what is known already.

        What is released from now on has a new id: the training that wrote the
        checkpoint may go on with the old one.

        Returns:
            What the optimizer's counter must be set to.
        """
        checkpoint = saved._snapshot()
        with self._lock:
            now = self._account.segments[-1:]
            spent = self._counter() if self._counter else 0
            self._account, total = self._account.union(spent, checkpoint, saved_total)
            self._sealed = len(self._account.segments)
            # What is open here stays open, whatever the checkpoint used.
            for segment in now or self._account.segments[-1:]:
                self.open(total, segment.claim, _from_anywhere(segment))
            return total

    def _snapshot(self) -> Account:
        """What is recorded now. Two ledgers are never locked at once."""
        with self._lock:
            return self._account.copy()

    def _total(self, given: int | None) -> int:
        """The number of releases, checked against the segments."""
        if given is None:
            if self._counter is None and self._account.segments:
                raise ValueError(
                    "Argument `total_releases` must be given: this ledger belongs to "
                    "no optimizer. Received: total_releases=None"
                )
            given = self._counter() if self._counter else 0
        total = int(given)
        self._account.check_total(total)
        return total

    @classmethod
    def _of(cls, account: Account, counter: Callable[[], int] | None = None) -> Ledger:
        """A ledger of what another process may go on with."""
        ledger = cls(counter)
        ledger._account = account
        ledger._sealed = len(account.segments)
        return ledger

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        account = self._account
        return f"Ledger(segments={account.segments}, one_offs={account.one_offs})"


def _from_anywhere(segment: Segment) -> Sampling:
    """The sampling of a segment that begins in the middle of a pass over the data.

    A run of correlated noise on shuffled data is known to begin with a pass; one that
    does not may see an example twice in a row.
    """
    unknown_place = segment.claim.proven.is_run and isinstance(
        segment.sampling, Shuffled
    )
    return FullBatch(unit=segment.sampling.unit) if unknown_place else segment.sampling


def stated_sampling(sampling: Sampling) -> str:
    """The assumption behind a sampling that a user has stated."""
    return f"batches were drawn as was stated ({sampling.describe()})"


def _part_from_the_parent() -> None:
    """A forked child goes on with a stream that its parent goes on with, too."""
    for ledger in list(_LEDGERS.values()):
        # Another thread of the parent may have held it; here it holds it for ever.
        ledger._lock = threading.RLock()
        segments = ledger._account.segments
        if segments:
            segments[-1] = dataclasses.replace(segments[-1], id=new_id())


os.register_at_fork(after_in_child=_part_from_the_parent)
