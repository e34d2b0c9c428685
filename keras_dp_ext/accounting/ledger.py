"""Everything that was ever released about one data set, in order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting import sampling as samplings
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sampling import Sampling

#: What a ledger can be asked for; see `Ledger.epsilon`.
FIGURES = ("proven", "published", "if_poisson")


@dataclasses.dataclass(frozen=True)
class Segment:
    """From release number `start` on, until the next segment."""

    start: int
    claim: Claim
    sampling: Sampling

    def serialize(self) -> dict[str, Any]:
        return {"start": self.start, **_serialize(self.claim, self.sampling)}


@dataclasses.dataclass(frozen=True)
class OneOff:
    """Releases that are not counted by the optimizer, such as a DP-PCA."""

    claim: Claim
    sampling: Sampling
    count: int

    def serialize(self) -> dict[str, Any]:
        return {"count": self.count, **_serialize(self.claim, self.sampling)}


class Ledger:
    """An append-only account of releases on the same data.

    A training run opens a *segment* whenever the claim or the sampling changes.
    How many releases a segment has follows from where the next one starts and,
    for the last, from the optimizer's own counter of releases, which is
    checkpointed with the weights. A ledger therefore cannot fall behind: there is
    nothing to update at each step.

    Example:

    >>> from keras_dp_ext.accounting import Claim, GaussianRelease, Ledger, Poisson
    >>> ledger = Ledger()
    >>> ledger.open(0, Claim(GaussianRelease(1.1)), Poisson(0.01))
    >>> ledger.open(500, Claim(GaussianRelease(0.9)), Poisson(0.01))
    >>> [count for _, _, count in ledger.entries(total_releases=800)]
    [500, 300]
    """

    def __init__(self):
        self._segments: list[Segment] = []
        self._one_offs: list[OneOff] = []

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
        if start < (self._segments[-1].start if self._segments else 0):
            raise ValueError(
                "Argument `start_release` must not lie before the last segment. "
                f"Received: start_release={start_release}, last={self._segments[-1:]}"
            )
        if self._segments and self._segments[-1].start == start:
            # Nothing was released under it.
            self._segments.pop()
        last = self._segments[-1] if self._segments else None
        if last and (last.claim, last.sampling) == (claim, sampling):
            epoch = getattr(sampling, "steps_per_epoch", 1)
            if (start - last.start) % epoch == 0:
                return
        self._segments.append(Segment(start, claim, sampling))

    def add(self, claim: Claim, sampling: Sampling, count: int = 1) -> None:
        """Records `count` releases outside the optimizer's counter."""
        if count < 0 or count != int(count):
            raise ValueError(
                "Argument `count` must be a nonnegative integer. "
                f"Received: count={count}"
            )
        self._one_offs.append(OneOff(claim, sampling, int(count)))

    def entries(self, total_releases: int) -> list[tuple[Claim, Sampling, int]]:
        """All releases, as triples of claim, sampling and count.

        Args:
            total_releases: The optimizer's counter.

        Raises:
            ValueError: If the counter lies before the last segment, or counts
                releases that no segment covers: their cost would be lost.
        """
        total = int(total_releases)
        starts = [segment.start for segment in self._segments]
        if (starts and total < starts[-1]) or total < 0:
            raise ValueError(
                "Argument `total_releases` must not lie before the last segment, "
                f"which starts at {starts[-1] if starts else 0}. "
                f"Received: total_releases={total_releases}"
            )
        if total > 0 and (not starts or starts[0] > 0):
            raise ValueError(
                f"{starts[0] if starts else total} releases are in no segment of the "
                "ledger, so that their cost is unknown. Train with "
                "`PrivacyAccountant` from the first step on, or call "
                "`optimizer.open_segment(sampling)` before it. "
                f"Received: total_releases={total_releases}"
            )
        ends = [*starts[1:], total] if starts else []
        entries = []
        for one_off in self._one_offs:
            entries += one_off.claim.sampled(one_off.sampling, 0, one_off.count)
        for segment, end in zip(self._segments, ends, strict=True):
            entries += segment.claim.sampled(segment.sampling, segment.start, end)
        return entries

    def epsilon(
        self,
        total_releases: int,
        delta: float,
        accountant: str = "rdp",
        figure: str = "proven",
        **options: Any,
    ) -> float:
        """Epsilon of everything in the ledger.

        Args:
            total_releases: The optimizer's counter of releases.
            delta: Target delta.
            accountant: "rdp" or "pld".
            figure: "proven", what holds for what was executed; "published", what
                the papers' accounting prints; "if_poisson", what would be proven
                had each batch been a Poisson sample.
            **options: Passed on to the accountant (`conversion="classic"`).

        Returns:
            Epsilon, possibly infinite.
        """
        entries = figure_entries(self.entries(total_releases), figure)
        return accountants.epsilon(entries, delta, accountant, **options)

    def caveats(self) -> list[str]:
        """The distinct caveats of all claims, in order."""
        records = [*self._one_offs, *self._segments]
        caveats = (r.claim.caveat for r in records if r.claim.caveat)
        return list(dict.fromkeys(caveats))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order."""
        return tuple(self._segments)

    def to_json(self) -> str:
        """The ledger as a JSON string."""
        return json.dumps(
            {
                "segments": [s.serialize() for s in self._segments],
                "one_offs": [o.serialize() for o in self._one_offs],
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger with this `to_json`."""
        data = json.loads(text)
        ledger = cls()
        for record in data["segments"]:
            ledger._segments.append(Segment(record["start"], *_deserialize(record)))
        for record in data["one_offs"]:
            ledger._one_offs.append(OneOff(*_deserialize(record), record["count"]))
        return ledger

    @classmethod
    def merge(cls, ledgers: Iterable[tuple[Ledger, int]]) -> Ledger:
        """One ledger for several models that were trained on the same data.

        Args:
            ledgers: Pairs of a ledger and its optimizer's counter of releases.

        Returns:
            A ledger whose `epsilon(0, delta)` covers all of them.
        """
        merged = cls()
        for ledger, total_releases in ledgers:
            for claim, sampling, count in ledger.entries(total_releases):
                merged.add(claim, sampling, count)
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
        if other._continues(other_total, self, total_releases):
            return other, other_total
        if not self._continues(total_releases, other, other_total):
            known = list(self._one_offs)
            for entry in other.entries(other_total):
                one_off = OneOff(*entry)
                if one_off in known:
                    known.remove(one_off)  # Loaded a second time.
                else:
                    self._one_offs.append(one_off)
        return self, total_releases

    def _continues(self, total: int, other: Ledger, other_total: int) -> bool:
        """Whether all that `other` has released is the beginning of this ledger."""
        if other_total > total:
            return False

        def begun(ledger: Ledger) -> list[Segment]:
            return [s for s in ledger._segments if s.start < other_total]

        count = len(other._one_offs)
        return begun(self) == begun(other) and self._one_offs[:count] == other._one_offs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.to_json() == other.to_json()

    __hash__ = None

    def __repr__(self) -> str:
        return f"Ledger(segments={self._segments}, one_offs={self._one_offs})"


def figure_entries(
    entries: Iterable[tuple[Claim, Sampling, int]], figure: str
) -> list[accountants.Entry]:
    """The events that a figure of `Ledger.epsilon` is about."""
    if figure not in FIGURES:
        raise ValueError(
            f"Argument `figure` must be one of {FIGURES}. Received: figure={figure}"
        )
    if figure == "proven":
        return [(claim.proven, sampling, n) for claim, sampling, n in entries]
    return [
        (
            claim.published or claim.proven if figure == "published" else claim.proven,
            sampling.if_poisson(),
            count,
        )
        for claim, sampling, count in entries
    ]


def _serialize(claim: Claim, sampling: Sampling) -> dict[str, Any]:
    return {"claim": claim.serialize(), "sampling": sampling.serialize()}


def _deserialize(record: dict[str, Any]) -> tuple[Claim, Sampling]:
    return Claim.deserialize(record["claim"]), samplings.get(record["sampling"])
