"""What the ledgers of a training account for, in the units in which it is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras

from keras_dp_ext.accounting import (
    Claim,
    ComposedRelease,
    CorrelatedRelease,
    CyclicPoisson,
    FullBatch,
    FullBatchRelease,
    GaussianRelease,
    Ledger,
    Poisson,
    Sampling,
)
from keras_dp_ext.accounting.correlated import independent_releases

Entry = tuple[Claim, Sampling, int]


@dataclasses.dataclass(frozen=True)
class Accounted:
    """Sums over all entries of the ledgers.

    Attributes:
        releases: How many releases are paid for.
        participations: In how many of them one example may take part, at most.
        sampled_lots: How many lots, drawn independently of each other, the
            amplification by sampling supposes.
        precision: Sum of the inverse squared noise multipliers of all releases in
            which an example may take part; infinite where one is not Gaussian.
        samplings: All samplings, without those that occur twice.
    """

    releases: int
    participations: int
    sampled_lots: int
    precision: float
    samplings: tuple[Sampling, ...]


def accounted(returned: Any) -> Accounted:
    """What was claimed of a training, by what it returned.

    Args:
        returned: A compiled model, a private optimizer or a `Ledger`, or several.

    Raises:
        ValueError: If there is nothing private in it.
    """
    entries = [
        entry for part in keras.tree.flatten(returned) for entry in _entries(part)
    ]
    releases = participations = lots = 0
    precision = 0.0
    for claim, sampling, count in entries:
        parts = _parts(claim.proven)
        often = sampling.participations(count)
        releases += count * len(parts)
        participations += often * len(parts)
        if isinstance(sampling, (Poisson, CyclicPoisson)) and sampling.rate < 1:
            lots += count
        if isinstance(claim.proven, CorrelatedRelease):
            # A run costs what so many independent releases do.
            event, _, often = independent_releases(claim.proven, sampling, count)
            parts = [event]
        precision += often * sum(_precision(part) for part in parts)
    samplings = tuple(dict.fromkeys(sampling for _, sampling, _ in entries))
    return Accounted(releases, participations, lots, precision, samplings)


def _entries(part: Any) -> Iterable[Entry]:
    if isinstance(part, Ledger):
        return part.entries()
    optimizer = getattr(part, "optimizer", part)
    if not hasattr(optimizer, "privacy_claim"):
        raise ValueError(
            "Argument `train` must return the model that it has trained with a "
            "private optimizer, that optimizer, or a Ledger; or a list of these. "
            f"Received: {part!r}"
        )
    releases = int(optimizer.releases.numpy())
    ledger = Ledger.from_json(optimizer.ledger.to_json())
    if releases and not ledger.segments:
        ledger.open(0, optimizer.privacy_claim(), FullBatch())
    # Without a ledger, every release counts as one of the whole data set.
    ledger.declare(FullBatch())
    return ledger.entries(releases)


def _parts(event: Any) -> list[Any]:
    if isinstance(event, ComposedRelease):
        return [leaf for part in event.events for leaf in _parts(part)]
    if isinstance(event, FullBatchRelease):
        return _parts(event.event)
    return [event]


def _precision(event: Any) -> float:
    if not isinstance(event, GaussianRelease) or event.noise_multiplier == 0:
        return float("inf")
    return event.noise_multiplier**-2
