"""A lot of fixed capacity is as private as announced, and no more than that."""

import numpy as np
import pytest
from scipy import integrate, stats

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


def test_an_exact_analysis_of_the_default_capacity_could_gain_next_to_nothing():
    """What the docstring of `capacity.py` says; why there is none."""
    from keras_dp_ext.accounting import GaussianRelease, Poisson, epsilon_pld

    release, rate = GaussianRelease(1.1), 256 / 60_000
    plain, added = (
        epsilon_pld([(release, Poisson(rate, delta), 14_040)], 1e-5)
        for delta in (0.0, 1e-12)
    )
    assert 0 < added / plain - 1 < 1e-4
