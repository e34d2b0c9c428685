"""Four ways to add up the same training: basic, strong, moments, PLD.

The comparison that Abadi et al. (2016) make in Figure 2. Only `moments_accountant`,
`rdp_composition` and `pld_composition` are bounds as they stand; the two older
theorems start from an amplification by sampling that the paper simplifies, see
`amplified`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from keras_dp_ext._checks import check_in
from keras_dp_ext.accounting import accountants
from keras_dp_ext.accounting.events import GaussianRelease
from keras_dp_ext.accounting.sampling import Poisson


def gaussian_epsilon(
    noise_multiplier: float, delta: float, rule: str = "classic"
) -> float:
    """Epsilon of one Gaussian release without sampling.

    Args:
        noise_multiplier: Standard deviation over sensitivity.
        delta: Target delta.
        rule: "classic" for sqrt(2 log(1.25 / delta)) / sigma, the theorem that the
            papers start from (proven for epsilon below 1), or "exact" for the
            least epsilon there is (Balle and Wang, 2018).

    Example:

    >>> round(gaussian_epsilon(4.0, 1e-5), 2)
    1.21
    >>> round(gaussian_epsilon(4.0, 1e-5, "exact"), 2)
    0.93
    """
    _check(noise_multiplier, delta)
    if rule == "classic":
        return math.sqrt(2.0 * math.log(1.25 / delta)) / noise_multiplier
    if rule != "exact":
        raise ValueError(
            f'Argument `rule` must be "classic" or "exact". Received: rule={rule!r}'
        )
    import dp_accounting

    return float(dp_accounting.get_epsilon_gaussian(noise_multiplier, delta))


def amplified(epsilon: float, rate: float, amplification: str = "published") -> float:
    """Epsilon of an (epsilon, delta) mechanism on a Poisson sample.

    Its delta becomes `rate * delta`.

    Args:
        epsilon: Epsilon without sampling.
        rate: Poisson sampling rate.
        amplification: "published" for `rate * epsilon`, with which Abadi et al.
            must have drawn Figure 2: right for small epsilon, but not a bound.
            "proven" for log(1 + rate * (exp(epsilon) - 1)), which is one.

    References:

    - Kasiviswanathan et al. (2011); Balle, Barthe, Gaboardi (2018), Theorem 8.
    """
    if amplification == "published":
        return rate * epsilon
    if amplification != "proven":
        raise ValueError(
            'Argument `amplification` must be "published" or "proven". '
            f"Received: amplification={amplification!r}"
        )
    # log(1 - rate + rate exp(epsilon)), without overflow.
    return float(
        np.logaddexp(special.log1p(-rate), math.log(rate) + epsilon)
        if epsilon > 1.0
        else math.log1p(rate * math.expm1(epsilon))
    )


def basic_composition(
    noise_multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    amplification: str = "published",
) -> float:
    """Epsilons and deltas of amplified Gaussian releases, simply added.

    Args:
        noise_multiplier: Standard deviation over sensitivity.
        rate: Poisson sampling rate.
        steps: Number of releases.
        delta: Total delta, of which every release gets the same share.
        amplification: See `amplified`.
    """
    _check(noise_multiplier, delta)
    if steps == 0 or rate == 0:
        return 0.0
    single = gaussian_epsilon(noise_multiplier, min(1.0, delta / (steps * rate)))
    return steps * amplified(single, rate, amplification)


def strong_composition(
    noise_multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    amplification: str = "published",
) -> float:
    """The strong composition theorem, with the split of delta that is best.

    For k releases of (e, d) and any slack s,

        epsilon = e sqrt(2 k log(1 / s)) + k e (exp(e) - 1),   delta = k d + s.

    Args:
        noise_multiplier: Standard deviation over sensitivity.
        rate: Poisson sampling rate.
        steps: Number of releases.
        delta: Total delta.
        amplification: See `amplified`.

    References:

    - Dwork, Rothblum, Vadhan (2010), Theorem III.3.

    Example: Figure 2 of Abadi et al. at 100 epochs, and what is proven.

    >>> round(strong_composition(4.0, 0.01, 10_000, 1e-5), 2)  # printed: 9.34
    9.35
    >>> round(strong_composition(4.0, 0.01, 10_000, 1e-5, "proven"), 2)
    26.39
    """
    _check(noise_multiplier, delta)
    if steps == 0 or rate == 0:
        return 0.0

    def total(log_odds: float) -> float:
        slack = delta * special.expit(log_odds)
        share = (delta - slack) / (steps * rate)
        single = gaussian_epsilon(noise_multiplier, min(1.0, share))
        single = amplified(single, rate, amplification)
        return single * math.sqrt(2.0 * steps * math.log(1.0 / slack)) + (
            steps * single * math.expm1(single)
        )

    best = optimize.minimize_scalar(total, bounds=(-20.0, 20.0), method="bounded")
    return float(min(best.fun, total(0.0)))


def moments_accountant(
    noise_multiplier: float, rate: float, steps: int, delta: float
) -> float:
    """The moments accountant of Abadi et al.: RDP with the classic conversion.

    Example: Figure 2 of Abadi et al. at 100 epochs.

    >>> round(moments_accountant(4.0, 0.01, 10_000, 1e-5), 2)
    1.26
    """
    return accountants.epsilon_rdp(
        [(GaussianRelease(noise_multiplier), Poisson(rate), steps)],
        delta,
        conversion="classic",
    )


def rdp_composition(
    noise_multiplier: float, rate: float, steps: int, delta: float
) -> float:
    """RDP with the tight conversion: this package's default."""
    return accountants.epsilon_rdp(
        [(GaussianRelease(noise_multiplier), Poisson(rate), steps)], delta
    )


def pld_composition(
    noise_multiplier: float, rate: float, steps: int, delta: float
) -> float:
    """Privacy loss distributions: the tightest of all."""
    return accountants.epsilon_pld(
        [(GaussianRelease(noise_multiplier), Poisson(rate), steps)], delta
    )


#: All of them, loosest first.
COMPOSITIONS = {
    "basic": basic_composition,
    "strong": strong_composition,
    "moments": moments_accountant,
    "rdp": rdp_composition,
    "pld": pld_composition,
}


def compare(
    noise_multiplier: float,
    rate: float,
    steps: int | Sequence[int],
    delta: float,
    compositions: Sequence[str] = tuple(COMPOSITIONS),
) -> dict[str, float | list[float]]:
    """Epsilon by each composition, side by side.

    Args:
        noise_multiplier: Standard deviation over sensitivity.
        rate: Poisson sampling rate.
        steps: Number of releases, or several.
        delta: Total delta.
        compositions: Names from `COMPOSITIONS`.

    Returns:
        By name, one epsilon or one for each number of steps.
    """
    result: dict[str, float | list[float]] = {}
    for name in compositions:
        if name not in COMPOSITIONS:
            raise ValueError(
                f"Argument `compositions` must hold names of {tuple(COMPOSITIONS)}. "
                f"Received: {name!r}"
            )
        compose = COMPOSITIONS[name]
        if isinstance(steps, Sequence):
            result[name] = [compose(noise_multiplier, rate, n, delta) for n in steps]
        else:
            result[name] = compose(noise_multiplier, rate, steps, delta)
    return result


def _check(noise_multiplier: float, delta: float) -> None:
    check_in("delta", delta, "[0, 1]")
    if not noise_multiplier > 0 or delta == 0:
        raise ValueError(
            "Arguments `noise_multiplier` and `delta` must be positive. Received: "
            f"noise_multiplier={noise_multiplier}, delta={delta}"
        )
