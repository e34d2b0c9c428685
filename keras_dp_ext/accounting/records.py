"""The lines of a ledger: streams of releases, each with an id of its own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from keras_dp_ext.accounting import sampling as samplings
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sampling import Sampling

#: One line of a report: what a release costs, how it is sampled, how many there are.
LedgerEntry = tuple[Claim, Sampling, int]


def new_id() -> str:
    """A random name for a stream of releases; never the same twice."""
    return os.urandom(12).hex()


@dataclasses.dataclass(frozen=True)
class Segment:
    """From release number `start` on, until the next segment.

    Attributes:
        start: How many releases the optimizer had made before.
        claim: What each release costs.
        sampling: How its examples are chosen.
        id: Tells this stream from that of another training with equal settings.
            Only one optimizer ever adds to it: restoring a checkpoint opens a
            new segment.
    """

    start: int
    claim: Claim
    sampling: Sampling
    id: str = dataclasses.field(default_factory=new_id)

    def serialize(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "start": self.start,
            **_serialize(self.claim, self.sampling),
        }

    @classmethod
    def deserialize(cls, record: Mapping[str, Any]) -> Segment:
        return cls(record["start"], *_deserialize(record), id=_id_of(record))


@dataclasses.dataclass(frozen=True)
class OneOff:
    """Releases that the optimizer does not count: a private PCA, another training.

    Attributes:
        claim: What each release costs.
        sampling: How its examples are chosen.
        count: How many releases there are.
        id: Tells these releases from others with equal settings. The same id in two
            ledgers means the same releases, which count once.
        start: Number of the stream's first release, for claims that follow a
            schedule.
    """

    claim: Claim
    sampling: Sampling
    count: int = 1
    id: str = dataclasses.field(default_factory=new_id)
    start: int = 0

    def entries(self) -> list[LedgerEntry]:
        """The releases, in parts that are to be counted apart."""
        stop = self.start + self.count
        return self.claim.sampled(self.sampling, self.start, stop)

    def serialize(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "start": self.start,
            "count": self.count,
            **_serialize(self.claim, self.sampling),
        }

    @classmethod
    def deserialize(cls, record: Mapping[str, Any]) -> OneOff:
        return cls(
            *_deserialize(record),
            record["count"],
            id=_id_of(record),
            start=record.get("start", 0),
        )


def longest(streams: Iterable[OneOff]) -> dict[str, OneOff]:
    """The streams that have any releases by id, each as far as it is known."""
    found: dict[str, OneOff] = {}
    for stream in streams:
        known = found.get(stream.id)
        if stream.count and (known is None or known.count < stream.count):
            found[stream.id] = stream
    return found


def check_one_unit(samplings: Iterable[Sampling]) -> None:
    """Raises where some releases protect an example, and others a person.

    Neither guarantee follows from the other: bounded one by one, the rows of a person
    move the sum by as many bounds; bounded together, one row more changes a person's
    vector to another one instead of adding it.
    """
    units = sorted({sampling.unit for sampling in samplings})
    if len(units) > 1:
        raise ValueError(
            "Some releases on these data protect one example, and others one person "
            "with all rows: no epsilon covers both. Train with `user_ids` from the "
            "first step on, or never; make a new model and optimizer, and adapt layers "
            f"such as `PrivatePCA` on other data. Received: units={units}"
        )


def joined(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    """The same entries, neighbours that cost the same in one line.

    A training that was resumed has a segment for each time. Parts of shuffled data
    stay apart where together they would count a pass less.
    """
    result: list[LedgerEntry] = []
    for claim, sampling, count in entries:
        # Two runs of correlated noise are not one longer run.
        if result and result[-1][:2] == (claim, sampling) and not claim.proven.is_run:
            former = result[-1][2]
            apart = sampling.participations(former) + sampling.participations(count)
            if sampling.participations(former + count) == apart:
                result[-1] = (claim, sampling, former + count)
                continue
        result.append((claim, sampling, count))
    return result


def _id_of(record: Mapping[str, Any]) -> str:
    # The first format had no ids. A fresh one may count a file that is loaded twice
    # twice; an id made of its contents would count two trainings as one.
    return record.get("id") or new_id()


def _serialize(claim: Claim, sampling: Sampling) -> dict[str, Any]:
    return {"claim": claim.serialize(), "sampling": sampling.serialize()}


def _deserialize(record: Mapping[str, Any]) -> tuple[Claim, Sampling]:
    return Claim.deserialize(record["claim"]), samplings.get(record["sampling"])
