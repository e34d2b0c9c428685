"""Renyi differential privacy of one release under a sampling scheme."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from keras_dp_ext.accounting import balls_in_bins
from keras_dp_ext.accounting.coverage import as_gaussian, check_covered
from keras_dp_ext.accounting.events import (
    CodebookRelease,
    ComposedRelease,
    Event,
    FullBatchRelease,
    GaussianRelease,
    NoiseRelease,
)
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    FullBatch,
    Poisson,
    Sampling,
    Shuffled,
    WithReplacement,
)
from keras_dp_ext.accounting.shift_moments import log_vector_moments

#: Orders in three tiers: higher tiers matter for small epsilon only, and are
#: computed when the tiers before them leave the optimum at their end.
ORDER_TIERS: tuple[tuple[float, ...], ...] = (
    (*(1.0 + x / 10.0 for x in range(1, 100)), *map(float, range(11, 65))),
    (*map(float, range(66, 129, 2)), *map(float, range(132, 257, 4))),
    (320.0, 384.0, 512.0, 768.0, 1024.0),
)
# The powers k at which log E[L**k] is computed, one block for each tier. Sparse
# where k is large: these terms hardly count at the orders that matter.
_POWER_BLOCKS = (
    np.arange(2, 65),
    np.concatenate([np.arange(68, 129, 4), np.arange(136, 257, 8)]),
    np.arange(288, 1025, 32),
)


def rdp_per_release(
    event: Event, sampling: Sampling, orders: npt.ArrayLike, tail: float = 0.0
) -> np.ndarray:
    """RDP of one release (for `Shuffled` and `BallsInBins`: of one pass), at each order.

    - `Poisson`: amplified by sampling. Gaussian noise by dp_accounting, any other
      noise by Lemma 4 of Nasr et al. with the factor 1 / (a - 1).
    - `FullBatch`, `Shuffled`: not amplified.
    - `BallsInBins`: amplified, for Gaussian noise; see `balls_in_bins.py`.
    - `WithReplacement`: see `with_replacement`, which also needs `tail`.

    Args:
        event: What was released.
        sampling: How the examples were chosen.
        orders: Orders above 1.
        tail: For `WithReplacement`, the probability of more inclusions of one
            example than are accounted; it has to be added to delta.

    Returns:
        Array of `len(orders)`, possibly with infinities.

    Raises:
        TypeError: If the event or the sampling is not known.
        MomentError: If a bound cannot be computed.
    """
    orders = np.asarray(orders, np.float64)
    if isinstance(event, ComposedRelease):
        parts = event.parts()
        rdps = [rdp_per_release(part, sampling, orders, tail) for part in parts]
        return np.sum([np.zeros(orders.shape), *rdps], axis=0)
    if isinstance(event, FullBatchRelease):
        return rdp_per_release(event.event, FullBatch(), orders)
    if isinstance(sampling, Poisson):
        result = _poisson(event, sampling.rate, tuple(orders))
    elif isinstance(sampling, (FullBatch, Shuffled)):
        result = _poisson(event, 1.0, tuple(orders))
    elif isinstance(sampling, BallsInBins):
        check_covered(event, sampling)
        gaussian = as_gaussian(event)
        assert gaussian is not None
        result = balls_in_bins.rdp_of_pass(
            gaussian.noise_multiplier, sampling.steps_per_epoch, orders
        )
    elif isinstance(sampling, WithReplacement):
        result = with_replacement(event, sampling, orders, tail)
    else:
        raise TypeError(
            "Argument `sampling` must be one that the accountant knows. "
            f"Received: sampling={sampling}"
        )
    if not np.all(result >= 0):
        raise ArithmeticError(f"The RDP of {event} came out negative or undefined.")
    return result


@functools.lru_cache(maxsize=256)
def _poisson(
    event: Event, rate: float, orders: tuple[float, ...], times: int = 1
) -> np.ndarray:
    """RDP of an event in which each example takes part with probability `rate`.

    An example that takes part contributes `times` rows.
    """
    if isinstance(event, (NoiseRelease, CodebookRelease)):
        gaussian = event.as_gaussian()
        if gaussian is None:
            return _read_only(noise_rdp(event, rate, orders, times))
        event = gaussian
    if isinstance(event, GaussianRelease):
        multiplier = event.noise_multiplier / times
        return _read_only(_gaussian_rdp(multiplier, rate, orders))
    raise TypeError(
        "Argument `event` must be one that the accountant knows. "
        f"Received: event={event}"
    )


def _read_only(array: np.ndarray) -> np.ndarray:
    """A cached array, that no caller can change for the others."""
    array.flags.writeable = False
    return array


def _gaussian_rdp(
    multiplier: float, rate: float, orders: Sequence[float]
) -> np.ndarray:
    """The sampled Gaussian mechanism, by dp_accounting."""
    if rate == 0 or math.isinf(multiplier):
        return np.zeros(len(orders))
    if multiplier == 0:
        return np.full(len(orders), np.inf)
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant(orders)
    with _quiet_absl(), np.errstate(over="ignore", invalid="ignore"):
        accountant.compose(
            dp_accounting.PoissonSampledDpEvent(
                rate, dp_accounting.GaussianDpEvent(multiplier)
            )
        )
    # Where its series diverges, dp_accounting excludes the order (infinity); NaN
    # (overflow for tiny multipliers) is excluded likewise. A logarithm of a sum
    # near 1 is good to 1e-13 only, and may come out negative; but sampling never
    # costs more than the release without it.
    rdp = np.where(np.isnan(accountant.rdp), np.inf, accountant.rdp)
    unsampled = np.asarray(orders) / (2.0 * multiplier**2)
    return np.minimum(np.maximum(rdp, 0.0) + 1e-13, unsampled)


@contextlib.contextmanager
def _quiet_absl() -> Iterator[None]:
    """dp_accounting warns for each order that it leaves out; that is harmless."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def noise_rdp(
    event: NoiseRelease | CodebookRelease,
    rate: float,
    orders: Sequence[float],
    times: int = 1,
) -> np.ndarray:
    """RDP of any symmetric noise, by the moments of its likelihood ratio.

    With P the noise shifted by a vector and Q the noise, both directions count:
    D(( 1-q) Q + q P || Q) and D(Q || (1-q) Q + q P). Reflection at half the shift
    exchanges P and Q, so the first is the greater one (Mironov, Talwar, Zhang,
    2019, Theorem 5; Nasr et al., Theorem 2), and for integer a >= 2

        (a - 1) rdp(a) = log sum_k C(a, k) (1-q)**(a-k) q**k E_Q[(P / Q)**k].

    For other orders, (a - 1) rdp(a) is convex in a and 0 at a = 1, so that it lies
    below the chord between the neighbouring integers. Without sampling, rdp(a) =
    log E_Q[(P / Q)**a] / (a - 1) is evaluated for every real order.

    Args:
        event: The release.
        rate: Probability q with which an example takes part.
        orders: Orders above 1.
        times: How many rows it then contributes.

    Returns:
        Array of `len(orders)`.

    References:

    - Nasr, Shokri, Houmansadr (2020), Lemma 4, with 1 / (a - 1) for the printed
      1 / (1 - a).
    """
    orders = np.asarray(orders, np.float64)
    if rate == 0:
        return np.zeros(orders.shape)
    if rate == 1:
        moments = _event_moments(event, orders, times)
        return moments / (orders - 1.0)
    integers = np.unique(np.concatenate([np.floor(orders), np.ceil(orders)]))
    integers = integers[integers >= 2].astype(int)
    moments = _integer_moments(event, integers[-1], times)
    cumulants = [_log_binomial_mixture(rate, order, moments) for order in integers]
    cumulants = np.interp(orders, [1.0, *integers], [0.0, *cumulants])
    return cumulants / (orders - 1.0)


def _event_moments(event: Any, powers: np.ndarray, times: int) -> np.ndarray:
    magnitudes, counts = event.magnitudes_and_counts()
    rows = 2 * times if event.replaced else times
    return log_vector_moments(event.noise, magnitudes, counts, powers, rows)


@functools.lru_cache(maxsize=64)
def _block_moments(event: Event, block: int, times: int) -> np.ndarray:
    return _read_only(_event_moments(event, _POWER_BLOCKS[block], times))


def _integer_moments(event: Event, greatest: int, times: int) -> np.ndarray:
    """Upper bounds on log E[L**k] for k = 0, ..., greatest.

    log E[L**k] is convex in k, so chords between computed powers lie above it.
    """
    blocks = [0]
    while _POWER_BLOCKS[blocks[-1]][-1] < greatest:
        blocks.append(blocks[-1] + 1)
    powers = np.concatenate([[0, 1], *(_POWER_BLOCKS[block] for block in blocks)])
    moments = np.concatenate(
        [[0, 0], *(_block_moments(event, block, times) for block in blocks)]
    )
    return np.interp(np.arange(greatest + 1), powers, moments)


def _log_binomial_mixture(rate: float, order: int, moments: np.ndarray) -> float:
    """log E[exp(moments[K])] for K ~ Binomial(order, rate), accurate near 0."""
    k = np.arange(order + 1)
    log_weights = (
        special.gammaln(order + 1)
        - special.gammaln(k + 1)
        - special.gammaln(order - k + 1)
        + k * math.log(rate)
        + (order - k) * math.log1p(-rate)
    )
    # exp(m) - 1, whose terms for k = 0 and 1 vanish: nothing cancels.
    m = moments[2 : order + 1]
    with np.errstate(divide="ignore"):
        log_excess = np.where(
            m > 1.0, m + np.log1p(-np.exp(-m)), np.log(np.expm1(np.minimum(m, 1.0)))
        )
    excess = special.logsumexp(log_weights[2:] + log_excess)
    return float(np.logaddexp(0.0, excess))


def inclusions_beyond(sampling: WithReplacement, inclusions: int) -> float:
    """Probability that one example is drawn more than `inclusions` times."""
    return float(
        special.bdtrc(inclusions, sampling.batch_size, 1.0 / sampling.num_examples)
    )


def inclusions_within(sampling: WithReplacement, tail: float) -> int:
    """The least m >= 1 with P(more than m inclusions) <= tail."""
    most = 1
    while most < sampling.batch_size and inclusions_beyond(sampling, most) > tail:
        most += 1
    return most


def with_replacement(
    event: Event, sampling: WithReplacement, orders: np.ndarray, tail: float
) -> np.ndarray:
    """RDP when a batch is drawn with replacement, but for a tail probability.

    Under zero-out adjacency an example is drawn J ~ Binomial(batch, 1 / N) times,
    and J = j adds j bounded rows, which differ where dropout or augmentation drew
    differently for each of them. Let p = P(J >= 1) and
    r_j = P(J = j | 1 <= J <= m), where m is the least number with
    P(J > m) <= tail. Given J <= m, the pair to compare is Q against
    (1 - p') Q + p' sum_j r_j P_j, with p' <= p. Both t -> (1 - p + p t)**a and
    t -> (1 - p + p t)**(1 - a) are convex, so by Jensen's inequality both
    directions have

        exp((a - 1) rdp(a)) <= sum_j r_j exp((a - 1) rdp_j(a)),

    with rdp_j the Poisson-sampled RDP at rate p of the event with j rows (each
    divergence grows with the rate).

    Multiplicities cannot simply be averaged: the moments of j**2 would diverge in
    a. What lies beyond m is moved to delta; see `accountants.epsilon_rdp`.
    """
    most = inclusions_within(sampling, tail)
    j = np.arange(1, most + 1)
    draw = 1.0 / sampling.num_examples
    batch = sampling.batch_size
    log_pmf = (
        special.gammaln(batch + 1)
        - special.gammaln(j + 1)
        - special.gammaln(batch - j + 1)
        + j * math.log(draw)
        + special.xlog1py(batch - j, -draw)
    )
    log_shares = log_pmf - special.logsumexp(log_pmf)
    rate = inclusions_beyond(sampling, 0)
    cumulants = [
        (orders - 1.0) * _poisson(event, rate, tuple(orders), int(times)) for times in j
    ]
    total = special.logsumexp(np.array(cumulants) + log_shares[:, None], axis=0)
    # Rounding may leave a sum of shares just below 1.
    return np.maximum(total, 0.0) * (1.0 + 1e-12) / (orders - 1.0)
