"""What it costs: accountants that turn (event, sampling, count) into epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_dp_ext._checks import check_in
from keras_dp_ext.accounting import pld
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.conversion import epsilon_from_rdp
from keras_dp_ext.accounting.correlated import independent_releases
from keras_dp_ext.accounting.events import (
    CodebookRelease,
    ComposedRelease,
    CorrelatedRelease,
    Event,
    FullBatchRelease,
    GaussianRelease,
    NoiseRelease,
)
from keras_dp_ext.accounting.rdp import (
    ORDER_TIERS,
    inclusions_beyond,
    inclusions_within,
    rdp_per_release,
)
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Poisson,
    Sampling,
    Shuffled,
    WithReplacement,
)

#: One line of a ledger: what was released, how it was sampled, how many times.
Entry = tuple[Event, Sampling, int]

# The part of delta that pays for an example being drawn unusually often.
_TAIL_SHARE = 0.1


def epsilon_rdp(
    entries: Iterable[Entry], delta: float, conversion: str = "tight"
) -> float:
    """Epsilon of all entries together, by Renyi differential privacy.

    Args:
        entries: Triples of event, sampling and number of releases.
        delta: Target delta.
        conversion: See `conversion.epsilon_from_rdp`.

    Returns:
        Epsilon, possibly infinite. 0 if nothing was released.
    """
    entries = spelled_out(entries)
    check_in("delta", delta, "[0, 1]")
    tails = _tails(entries, delta)
    counted = [
        (count, tail) for (_, _, count), tail in zip(entries, tails, strict=True)
    ]
    left = delta - _overflow_delta(entries) - sum(n * tail for n, tail in counted)
    # Dividing by P(no tail event) in the other direction costs this much epsilon.
    extra = -sum(n * math.log1p(-tail) for n, tail in counted)
    orders: tuple[float, ...] = ()
    rdp = np.zeros(0)
    for tier in ORDER_TIERS:
        total = np.zeros(len(tier))
        for (event, sampling, count), tail in zip(entries, tails, strict=True):
            compositions = sampling.participations(count)
            # Rates of zero with infinite RDP would give NaN; nothing times 0 is 0.
            if compositions:
                total += compositions * rdp_per_release(event, sampling, tier, tail)
        orders, rdp = orders + tier, np.concatenate([rdp, total])
        epsilon, best = epsilon_from_rdp(orders, rdp, max(left, 0.0), conversion)
        # Beyond the best order epsilon rises again: no need for higher tiers.
        if best < 0.75 * orders[-1] or not 0 < epsilon < math.inf:
            break
    return epsilon + extra


def _overflow_delta(entries: list[Entry]) -> float:
    """What lots of fixed capacity add to delta; see `sampling.Poisson`."""
    return sum(
        sampling.participations(count) * sampling.overflow_delta
        for _, sampling, count in entries
        if isinstance(sampling, (Poisson, BallsInBins))
    )


def _tails(entries: list[Entry], delta: float) -> list[float]:
    """For each entry the probability per release that is moved to delta.

    For sampling with replacement: P(more than m inclusions), with the least m for
    which all of them together stay within `_TAIL_SHARE` of delta.
    """
    releases = sum(n for _, s, n in entries if isinstance(s, WithReplacement))
    tails = []
    for _, sampling, _ in entries:
        tail = 0.0
        if isinstance(sampling, WithReplacement):
            allowed = _TAIL_SHARE * delta / releases
            most = inclusions_within(sampling, allowed)
            tail = inclusions_beyond(sampling, most)
        tails.append(tail)
    return tails


def epsilon_pld(entries: Iterable[Entry], delta: float) -> float:
    """Epsilon of all entries together, by privacy loss distributions.

    Tighter than RDP, for releases with Gaussian noise; see `pld.py`.

    Args:
        entries: Triples of event, sampling and number of releases.
        delta: Target delta.

    Returns:
        Epsilon, possibly infinite. 0 if nothing was released.

    Raises:
        NotImplementedError: If an event or a sampling has no PLD here.
    """
    check_in("delta", delta, "[0, 1]")
    parts = pld_parts(entries)
    if not parts or delta == 1:
        return 0.0
    if delta <= 0 or any(part.multiplier == 0 for part in parts):
        return math.inf
    delta -= separate_delta(parts)
    if delta <= 0:
        return math.inf
    return float(pld.distribution(parts).get_epsilon_for_delta(delta))


def pld_parts(entries: Iterable[Entry]) -> list[pld.Part]:
    """What the PLD accountant composes.

    Raises:
        NotImplementedError: If an event or a sampling has no PLD here.
    """
    return [
        part
        for event, sampling, releases in spelled_out(entries)
        for part in _gaussians(event, sampling, releases)
        if part.count and part.rate > 0 and not math.isinf(part.multiplier)
    ]


def separate_delta(parts: Iterable[pld.Part]) -> float:
    """What is to be added to the delta of `pld.distribution`."""
    return sum(
        part.count * part.sampling.overflow_delta
        for part in parts
        if isinstance(part.sampling, BallsInBins)
    )


def _gaussians(event: Event, sampling: Sampling, releases: int) -> list[pld.Part]:
    """An entry as Gaussian releases, or an error."""
    if isinstance(event, ComposedRelease):
        return [
            part
            for inner in event.parts()
            for part in _gaussians(inner, sampling, releases)
        ]
    if isinstance(event, FullBatchRelease):
        return _gaussians(event.event, FullBatch(), releases)
    if isinstance(event, (NoiseRelease, CodebookRelease)):
        event = event.as_gaussian() or event
    if not isinstance(event, GaussianRelease):
        raise NotImplementedError(
            'The accountant "pld" supports Gaussian noise only; use "rdp". '
            f"Received: {type(event).__name__} of {getattr(event, 'noise', event)}"
        )
    if isinstance(sampling, (FullBatch, Shuffled)):
        count = sampling.participations(releases)
        return [pld.Part(event.noise_multiplier, Poisson(1.0), count)]
    if isinstance(sampling, (Poisson, BallsInBins)):
        count = sampling.participations(releases)
        return [pld.Part(event.noise_multiplier, sampling, count)]
    raise NotImplementedError(
        'The accountant "pld" does not support this sampling; use "rdp". '
        f"Received: sampling={sampling}"
    )


def spelled_out(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that count, with schedules (from release 0 on) spelled out."""
    entries = list(entries)
    for _, _, count in entries:
        if count < 0 or count != int(count):
            raise ValueError(
                "Argument `count` must be a nonnegative integer. "
                f"Received: count={count}"
            )
    return [
        entry
        for event, sampling, count in entries
        for claim, _, part in Claim(event).sampled(sampling, 0, int(count))
        for entry in _apart(claim.proven, sampling, part)
    ]


def _apart(event: Event, sampling: Sampling, count: int) -> list[Entry]:
    """One entry for each part of an event that has a sampling of its own.

    What sees the full data set costs the same in every release; under `Shuffled`
    the rest of the event does not, so that they cannot share a count.
    """
    if isinstance(event, ComposedRelease):
        return [
            entry for part in event.parts() for entry in _apart(part, sampling, count)
        ]
    if isinstance(event, FullBatchRelease):
        return _apart(event.event, FullBatch(), count)
    if isinstance(event, CorrelatedRelease):
        return [independent_releases(event, sampling, count)]
    if isinstance(sampling, CyclicPoisson):
        return [(event, sampling.poisson(), sampling.participations(count))]
    if isinstance(sampling, FixedOrder):
        return [(event, FullBatch(), sampling.participations(count))]
    return [(event, sampling, count)]


ACCOUNTANTS = {"rdp": epsilon_rdp, "pld": epsilon_pld}


def epsilon(
    entries: Iterable[Entry], delta: float, accountant: str = "rdp", **options: Any
) -> float:
    """Epsilon of all entries together.

    Args:
        entries: Triples of event, sampling and number of releases.
        delta: Target delta.
        accountant: "rdp" (any noise) or "pld" (Gaussian noise, tighter).
        **options: For "rdp": `conversion`.

    Returns:
        Epsilon, possibly infinite.

    Example:

    >>> step = GaussianRelease(noise_multiplier=1.1), Poisson(256 / 60000), 14063
    >>> round(epsilon([step], delta=1e-5), 3)
    2.597
    """
    if accountant not in ACCOUNTANTS:
        raise ValueError(
            f"Argument `accountant` must be one of {sorted(ACCOUNTANTS)}. "
            f"Received: accountant={accountant}"
        )
    return ACCOUNTANTS[accountant](entries, delta, **options)
