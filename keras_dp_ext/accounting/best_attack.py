"""What a guarantee means in words: how well the best possible attack can do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import special

from keras_dp_ext._checks import check_in
from keras_dp_ext.accounting import accountants, pld

#: The false positive rates for which reports tell the greatest true positive rate.
FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)

_POINTS = 10_000
# The profile is followed down to here at least, if epsilon is finite there.
_LEAST_DELTA = 1e-9
_GREATEST_MU = 1e4


@dataclasses.dataclass(frozen=True)
class PrivacyProfile:
    """Pairs for which (epsilon, delta)-DP holds, in both directions.

    Attributes:
        epsilons: Ascending and at least 0.
        deltas: One for each of them.
    """

    epsilons: np.ndarray
    deltas: np.ndarray

    @classmethod
    def of_epsilon(cls, epsilon: float, delta: float) -> PrivacyProfile:
        """All that follows from a single pair.

        (epsilon, delta)-DP implies (e, d)-DP for each e below epsilon, with
        1 - d = (1 - delta) (1 + exp(e)) / (1 + exp(epsilon)).

        References:

        - Kairouz, Oh, Viswanath (2015), The Composition Theorem for Differential
          Privacy, Section 3: the trade-off region of a single pair.
        """
        epsilons = np.linspace(0.0, epsilon, _POINTS)
        ratios = np.logaddexp(0.0, epsilons) - np.logaddexp(0.0, epsilon)
        return cls(epsilons, 1.0 - (1.0 - delta) * np.exp(ratios))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The greatest share of members that a test can recognise.

        For every pair, TPR <= e^eps FPR + delta, and, with the roles of members and
        others exchanged, 1 - FPR <= e^eps (1 - TPR) + delta. The least of these
        bounds is the trade-off curve, if the profile holds all pairs.
        """
        check_in("false_positive_rate", false_positive_rate, "[0, 1]")
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(self.epsilons)
            few = growth * false_positive_rate + self.deltas
            most = 1.0 - (1.0 - false_positive_rate - self.deltas) / growth
        bounds = np.concatenate([few, most])
        # NaN is infinity times 0, of a growth that no float can hold.
        return float(np.clip(np.nanmin(bounds, initial=1.0), 0.0, 1.0))

    def gdp_mu(self, delta: float) -> float:
        """The least mu whose Gaussian trade-off bounds this one, up to delta.

        For every epsilon, delta(epsilon) <= max(delta, that of N(0, 1) against
        N(mu, 1)); hence TPR <= Phi(Phi^-1(FPR) + mu) + delta. Without the allowance a
        subsampled mechanism would have the mu of one that is not: an example may,
        with a probability beyond all measure, be drawn each time.
        """
        relevant = self.deltas > delta
        if not relevant.any():
            return 0.0
        if relevant[-1]:
            return math.inf
        # Between two points delta is at most that of the left one, and the
        # Gaussian's at least that of the right one.
        needed = self.deltas[:-1][relevant[:-1]]
        epsilons = self.epsilons[1:][relevant[:-1]]

        def suffices(mu: float) -> bool:
            return bool(np.all(needed <= gaussian_delta(epsilons, mu)))

        low, high = 0.0, 1.0
        while not suffices(high):
            low, high = high, 2 * high
            if high > _GREATEST_MU:
                return math.inf
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return high


@dataclasses.dataclass(frozen=True)
class BestAttack:
    """Bounds on every attack that tries to tell whether somebody was in the data.

    Attributes:
        true_positive_rates: By false positive rate, the greatest share of members
            that it can recognise.
        gdp_mu: The mechanism is mu-GDP up to delta; see `PrivacyProfile.gdp_mu`.
        delta: That delta.
        computed_from: "pld", tight, or "epsilon", what follows from one pair of
            epsilon and delta: true, but not tight.
    """

    true_positive_rates: Mapping[float, float]
    gdp_mu: float
    delta: float
    computed_from: str

    def describe(self) -> str:
        """Two sentences for a statement."""
        rates = self.true_positive_rates
        points = " and ".join(
            f"at most {percent(rates[rate])} of those who were if it wrongly names "
            f"{percent(rate)} of those who were not"
            for rate in (0.01, 0.001)
        )
        text = (
            "In words: whatever an attacker knows and does, an attack that tells who "
            f"was in the training data rightly names {points}."
        )
        if math.isfinite(self.gdp_mu):
            text += (
                f" Up to delta, this is {rounded_up(self.gdp_mu):.3g}-Gaussian "
                "differential privacy (mu-GDP)."
            )
        if self.computed_from != "pld":
            text += (
                " These follow from epsilon and delta alone; the truth may be better."
            )
        return text

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `BestAttack.deserialize` turns back."""
        finite = math.isfinite(self.gdp_mu)
        return {
            "true_positive_rates": {
                str(rate): most for rate, most in self.true_positive_rates.items()
            },
            "gdp_mu": self.gdp_mu if finite else str(self.gdp_mu),
            "delta": self.delta,
            "computed_from": self.computed_from,
        }

    @classmethod
    def deserialize(cls, config: Mapping[str, Any]) -> BestAttack:
        """The bounds with this `serialize`."""
        rates = config["true_positive_rates"].items()
        return cls(
            {float(rate): most for rate, most in rates},
            float(config["gdp_mu"]),
            config["delta"],
            config["computed_from"],
        )


def best_attack(
    entries: Iterable[accountants.Entry], delta: float, epsilon: float | None = None
) -> BestAttack:
    """How well the best possible attack can do against all entries together.

    From the privacy loss distribution, where every release has Gaussian noise and a
    sampling that `epsilon_pld` knows; otherwise from epsilon and delta.

    Args:
        entries: Triples of event, sampling and number of releases.
        delta: Target delta, for mu.
        epsilon: Their proven epsilon at delta, if you have it; by default the RDP
            accountant computes it where it is needed.

    Example:

    >>> from keras_dp_ext.accounting import FullBatch, GaussianRelease
    >>> attack = best_attack([(GaussianRelease(1.0), FullBatch(), 1)], delta=1e-5)
    >>> round(attack.true_positive_rates[0.01], 3), round(attack.gdp_mu, 2)
    (0.092, 1.0)

    References:

    - Dong, Roth, Su (2019), Gaussian Differential Privacy, arXiv 1905.02383.
    """
    check_in("delta", delta, "[0, 1]")
    entries = list(entries)
    try:
        return _of_profile(_pld_profile(entries, delta), delta, "pld")
    except NotImplementedError:
        if epsilon is None:
            epsilon = accountants.epsilon_rdp(entries, delta)
        return from_epsilon(epsilon, delta)


def from_epsilon(
    epsilon: float,
    delta: float,
    false_positive_rates: Iterable[float] = FALSE_POSITIVE_RATES,
) -> BestAttack:
    """What follows from a single pair of epsilon and delta."""
    profile = None
    if math.isfinite(epsilon):
        profile = PrivacyProfile.of_epsilon(epsilon, delta)
    return _of_profile(profile, delta, "epsilon", false_positive_rates)


def gaussian_delta(epsilons: np.ndarray, mu: float) -> np.ndarray:
    """Delta of N(mu, 1) against N(0, 1), for each epsilon.

    References:

    - Balle, Wang (2018), Theorem 8; Dong, Roth, Su (2019), Corollary 2.13.
    """
    other = epsilons + special.log_ndtr(-epsilons / mu - mu / 2)
    return special.ndtr(-epsilons / mu + mu / 2) - np.exp(other)


def rounded_up(value: float, digits: int = 3) -> float:
    """The value with so many digits, never below it: a bound stays one in print."""
    if value == 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
    # What a float leaves of 0.01 is no reason to print 0.0101.
    return math.ceil(value / unit * (1 - 1e-12)) * unit


def percent(share: float) -> str:
    """A share for people, rounded up to three digits."""
    return f"{min(100.0, rounded_up(100 * share)):.3g}%"


def _pld_profile(entries: list, delta: float) -> PrivacyProfile | None:
    """`None` if there is no privacy at all."""
    parts = accountants.pld_parts(entries)
    if not parts:
        return PrivacyProfile(np.zeros(1), np.zeros(1))
    if any(part.multiplier == 0 for part in parts):
        return None
    losses = pld.distribution(parts)
    separate = accountants.separate_delta(parts)
    left = delta - separate
    least = min(_LEAST_DELTA, left / 2) if left > 0 else _LEAST_DELTA
    ends = (losses.get_epsilon_for_delta(d) for d in (least, max(least, delta)))
    # e^epsilon must be a float.
    end = next((e for e in ends if e < 700), None)
    if end is None:
        return None
    epsilons = np.linspace(0.0, end, _POINTS)
    deltas = np.asarray(losses.get_delta_for_epsilon(epsilons)) + separate
    return PrivacyProfile(epsilons, np.clip(deltas, 0.0, 1.0))


def _of_profile(
    profile: PrivacyProfile | None,
    delta: float,
    computed_from: str,
    false_positive_rates: Iterable[float] = FALSE_POSITIVE_RATES,
) -> BestAttack:
    def rate(false_positive_rate: float) -> float:
        return (
            1.0 if profile is None else profile.true_positive_rate(false_positive_rate)
        )

    return BestAttack(
        {fpr: rate(fpr) for fpr in false_positive_rates},
        math.inf if profile is None else profile.gdp_mu(delta),
        delta,
        computed_from,
    )
