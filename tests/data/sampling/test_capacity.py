"""A lot of fixed capacity is as private as announced, and no more than that."""

import dp_accounting
import numpy as np
import pytest
from scipy import integrate, stats

from keras_dp_ext.accounting import (
    GaussianRelease,
    Poisson,
    epsilon_pld,
    epsilon_rdp,
    pld,
)
from keras_dp_ext.data import overflow_delta, smallest_capacity

GRID = np.linspace(-14, 14, 40_001)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return integrate.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0), GRID)


def truncated_step(others, extra, rate, capacity, sigma) -> np.ndarray:
    """Density of one noised lot: `others` examples worth -1, perhaps one worth +1."""
    density = np.zeros_like(GRID)
    for drawn in range(others + 1):
        weight = stats.binom.pmf(drawn, others, rate)
        for with_extra in (0, 1):
            chance = weight * (rate if with_extra else 1 - rate)
            if not extra:
                chance, with_extra = weight * (1 - with_extra), 0
            lot = drawn + with_extra
            # Of an over-full lot each example stays with the same probability.
            stays = min(1.0, capacity / lot) if with_extra else 0.0
            kept = min(lot, capacity)
            for mean, share in ((2 - kept, stays), (-kept, 1 - stays)):
                density += chance * share * stats.norm.pdf(GRID, mean, sigma)
    return density


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.5])
@pytest.mark.parametrize("capacity", [1, 2, 4])
def test_truncated_lots_cost_at_most_the_announced_delta(sigma, capacity):
    others, rate = 5, 0.25
    without, with_extra = (
        truncated_step(others, extra, rate, capacity, sigma) for extra in (False, True)
    )
    quiet = stats.norm.pdf(GRID, 0, sigma)
    loud = (1 - rate) * quiet + rate * stats.norm.pdf(GRID, 1, sigma)
    announced = overflow_delta(others, rate, capacity)
    for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0, 4.0):
        for p, q, ideal_p, ideal_q in (
            (with_extra, without, loud, quiet),
            (without, with_extra, quiet, loud),
        ):
            ideal = hockey_stick(ideal_p, ideal_q, epsilon)
            assert hockey_stick(p, q, epsilon) <= ideal + announced + 1e-9


def test_forgetting_the_overflow_would_claim_too_much_privacy():
    """The term is needed: nearly every lot of this one overflows, z pushes out an
    example of the opposite sign, and the step is worse than the ideal one."""
    without, with_extra = (
        truncated_step(20, extra, 0.5, 1, sigma=1.0) for extra in (False, True)
    )
    quiet = stats.norm.pdf(GRID, 0, 1.0)
    loud = 0.5 * quiet + 0.5 * stats.norm.pdf(GRID, 1, 1.0)
    ideal = hockey_stick(loud, quiet, 4.0)
    assert hockey_stick(with_extra, without, 4.0) > 10 * ideal


@pytest.mark.parametrize("batch_size", [1, 16, 256, 2048])
def test_the_smallest_capacity_is_the_smallest(batch_size):
    rate = batch_size / 60_000
    capacity = smallest_capacity(60_000, rate, 1e-12)
    assert overflow_delta(60_000, rate, capacity) <= 1e-12
    assert overflow_delta(60_000, rate, capacity - 1) > 1e-12


def test_all_examples_and_one_more_always_fit():
    assert smallest_capacity(10, 1.0, 1e-12) == 11
    assert overflow_delta(10, 1.0, 11) == 0.0


def exact_losses(rate, overflow, sigma, releases=1):
    return pld.distribution([pld.Part(sigma, Poisson(rate, overflow), releases)])


@pytest.mark.parametrize("sigma", [0.5, 2.5])
@pytest.mark.parametrize("others,capacity", [(5, 1), (5, 3), (12, 1), (20, 9)])
@pytest.mark.parametrize("rate", [0.25, 0.6])
def test_no_truncated_lot_beats_the_mixture_of_its_losses(
    sigma, others, capacity, rate
):
    """Every lot size is enumerated; the example pushes out one of the other sign."""
    without, with_extra = (
        truncated_step(others, extra, rate, capacity, sigma) for extra in (False, True)
    )
    losses = exact_losses(rate, overflow_delta(others, rate, capacity), sigma)
    for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0, 4.0):
        for p, q in ((with_extra, without), (without, with_extra)):
            found = hockey_stick(p, q, epsilon)
            assert found <= losses.get_delta_for_epsilon(epsilon) + 1e-6


def test_two_truncated_lots_compose():
    others, rate, capacity, sigma = 5, 0.4, 2, 1.0
    without, with_extra = (
        truncated_step(others, extra, rate, capacity, sigma)[::80] for extra in (0, 1)
    )
    cell = (80 * (GRID[1] - GRID[0])) ** 2
    losses = exact_losses(rate, overflow_delta(others, rate, capacity), sigma, 2)
    pair = [np.multiply.outer(p, p) for p in (without, with_extra)]
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        for q, p in (pair, pair[::-1]):
            found = cell * np.sum(np.maximum(p - np.exp(epsilon) * q, 0))
            assert found <= losses.get_delta_for_epsilon(epsilon) + 1e-5


def test_an_attack_on_full_lots_comes_close_to_what_is_accounted():
    """So the second part of the mixture is needed, and not much too large."""
    others, rate, capacity, sigma = 40, 0.5, 1, 1.0
    without, with_extra = (
        truncated_step(others, extra, rate, capacity, sigma) for extra in (False, True)
    )
    # Nearly each lot is full, and keeps one in 21.
    kept = (
        rate
        * capacity
        * np.mean(1 / (1 + np.random.default_rng(0).binomial(40, 0.5, 10**5)))
    )
    losses = exact_losses(kept, kept, sigma)
    found = hockey_stick(with_extra, without, 1.0)
    assert 0.9 * losses.get_delta_for_epsilon(1.0) < found
    assert found > 5 * exact_losses(kept, 0.0, sigma).get_delta_for_epsilon(1.0)


@pytest.mark.parametrize("max_delta", [1e-12, 1e-9, 1e-5])
def test_losses_of_full_lots_agree_with_dp_accounting(max_delta):
    """Its event knows that a full lot keeps an example less often; it rounds up, too."""
    num_examples, rate, steps, sigma = 6000, 0.04, 200, 1.0
    capacity = smallest_capacity(num_examples, rate, max_delta)
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        num_examples + 1, rate, capacity, sigma
    )
    theirs = dp_accounting.pld.PLDAccountant().compose(event, steps).get_epsilon(1e-5)
    overflow = overflow_delta(num_examples, rate, capacity)
    entry = GaussianRelease(sigma), Poisson(rate, overflow), steps
    ours = epsilon_pld([entry], 1e-5)
    # Its second part is one of replacing, where ours is one of adding: a little looser.
    assert theirs * (1 - 5e-3) < ours < theirs * (1 + 1e-4)
    left = 1e-5 - steps * overflow
    if left > 0:  # Adding to delta is a bound, too, and never a better one.
        plain = GaussianRelease(sigma), Poisson(rate), steps
        assert ours <= epsilon_pld([plain], left) * (1 + 1e-6)


def test_small_lots_have_an_epsilon_where_adding_to_delta_leaves_none():
    entry = GaussianRelease(1.0), Poisson(0.04, 1e-6), 200
    assert epsilon_rdp([entry], 1e-5) == np.inf
    assert 1 < epsilon_pld([entry], 1e-5) < 10
