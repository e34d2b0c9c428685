"""Privacy loss distributions of Gaussian releases, by dp_accounting.

dp_accounting rounds privacy losses up, so that its figures are bounds.

**Lots of fixed capacity** (`data/sampling/capacity.py`). Let p be the probability that the other
examples alone fill the lot. Otherwise one example more is the sampled Gaussian mechanism at
rate q. If they do fill it, the example is drawn and kept with probability at most q, in the
slot of another one: the sum moves by at most two bounds, and no more. Both neighbours see a
full lot with the same probability, and telling them when only helps an attacker, so a
release is dominated by the mixture

    (1 - p) [sensitivity 1, rate q]  +  p [sensitivity 2, rate q].

It grows with p, and so with the number of examples: a public bound on it will do. This is
never more than what adding p q to delta gives, and where p is not small far less. See *Tighter
Privacy Analysis for Truncated Poisson Sampling* (2025), 2508.15089, and
`dp_accounting.TruncatedSubsampledGaussianDpEvent`, which replaces q in the second part by the
probability of being drawn and kept.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras_dp_ext.accounting import balls_in_bins
from keras_dp_ext.accounting.sampling import BallsInBins, Poisson

# Below this noise the ratios of balls in bins leave the range of a float; amplification
# is of no use there.
_LEAST_NOISE = 0.05
# The logarithm of the probability beyond which dp_accounting calls a loss infinite.
_LOG_TAIL = -50.0


@dataclasses.dataclass(frozen=True)
class Part:
    """Gaussian releases that cost the same.

    Attributes:
        multiplier: The noise multiplier.
        sampling: How examples are chosen.
        count: How many releases, or passes of balls in bins, there are.
    """

    multiplier: float
    sampling: Poisson | BallsInBins
    count: int

    @property
    def rate(self) -> float:
        """The probability that an example takes part in one release, or in a pass."""
        return self.sampling.rate if isinstance(self.sampling, Poisson) else 1.0


def distribution(parts: list[Part]) -> Any:
    """The `PrivacyLossDistribution` of all parts together."""
    from dp_accounting.pld import privacy_loss_distribution

    interval = _interval(parts)
    total = privacy_loss_distribution.identity(value_discretization_interval=interval)
    for part in parts:
        total = total.compose(_of_part(part, interval))
    return total


def _of_part(part: Part, interval: float) -> Any:
    multiplier, sampling, count = part.multiplier, part.sampling, part.count
    if isinstance(sampling, BallsInBins):
        if multiplier < _LEAST_NOISE:
            return _gaussian(multiplier / math.sqrt(count), 1.0, interval)
        single = balls_in_bins.loss_distribution(
            multiplier, sampling.steps_per_epoch, interval
        )
        return single.self_compose(count)
    if sampling.rate == 1 and not sampling.overflow_delta:
        return _gaussian(multiplier / math.sqrt(count), 1.0, interval)
    single = _gaussian(multiplier, sampling.rate, interval)
    full = min(1.0, sampling.overflow_delta / sampling.rate)
    if full:
        # Tails that full lots make unlikely need not be followed so far.
        tail = min(_LOG_TAIL - math.log(full), -10.0)
        other = _gaussian(multiplier / 2, sampling.rate, interval, tail)
        single = other.compute_mixture(single, full)
    return single.self_compose(count)


def _gaussian(
    multiplier: float, rate: float, interval: float, log_tail: float = _LOG_TAIL
) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        value_discretization_interval=interval,
        log_mass_truncation_bound=log_tail,
        sampling_prob=rate,
    )


def _interval(parts: list[Part]) -> float:
    """dp_accounting's own 1e-4, coarser where the loss is so large that the
    distribution would not fit into memory."""
    spread = sum(
        part.count * part.rate * (0.5 / part.multiplier**2 + 1 / part.multiplier)
        for part in parts
    )
    return max(1e-4, spread / 1e6)
