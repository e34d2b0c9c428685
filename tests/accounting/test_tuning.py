"""The cost of tuning: against dp_accounting, and against exact distributions."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease, Poisson
from keras_dp_ext.accounting.rdp import ORDER_TIERS
from keras_dp_ext.accounting.tuning import rdp_of_selection, success_probability

RUN = [(GaussianRelease(1.1), Poisson(0.01), 1000)]
SHAPES = [0.0, 0.5, 1.0, 3.0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.0, 2.0, 10.0, 300.0])
def test_epsilon_is_that_of_dp_accounting(mean, shape):
    orders = [order for tier in ORDER_TIERS for order in tier]
    run = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)),
        1000,
    )
    event = dp_event.RepeatAndSelectDpEvent(run, mean, shape)
    accountant = dp_accounting.rdp.RdpAccountant(orders).compose(event)
    ours = dp.accounting.tuning_epsilon(RUN, 1e-6, mean, shape)
    assert ours == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.5, 20.0])
def test_the_number_of_runs_has_the_mean(mean, shape):
    gamma = success_probability(mean, shape)
    numbers = np.arange(1, 20_000, dtype=float)
    # P(K = k), up to a factor, by its recursion.
    ratio = (numbers[:-1] + shape) / (numbers[:-1] + 1) * (1 - gamma)
    chance = np.concatenate([[1.0], np.cumprod(ratio)])
    chance /= chance.sum()
    assert chance @ numbers == pytest.approx(mean, rel=1e-6)
    draws = [dp.accounting.draw_runs(mean, shape, seed) for seed in range(4000)]
    deviation = np.sqrt(chance @ (numbers - mean) ** 2 / 4000)
    assert np.mean(draws) == pytest.approx(mean, abs=4.5 * deviation)
    assert np.mean(np.equal(draws, 1)) == pytest.approx(chance[0], abs=0.04)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chances", [(0.3, 0.2), (0.02, 0.01), (0.9, 0.97)])
def test_the_exact_divergence_of_a_small_selection_is_below_the_bound(shape, chances):
    """Each run succeeds or not; the best of K succeeds if any does."""
    orders = np.array([1.5, 2.0, 4.0, 8.0, 20.0])

    def divergence(p, q):
        p, q = np.array([p, 1 - p]), np.array([q, 1 - q])
        return np.array([np.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders])

    rdp = np.maximum(divergence(*chances), divergence(*chances[::-1]))
    for mean in (1.5, 5.0, 50.0):
        gamma = success_probability(mean, shape)

        def best(chance, gamma=gamma):
            """1 - E[(1 - chance)^K] by the generating function."""
            x = 1 - (1 - gamma) * (1 - chance)
            if shape == 0:
                return 1 - np.log(x) / np.log(gamma)
            return 1 - (x**-shape - 1) / (gamma**-shape - 1)

        exact = divergence(*map(best, chances))
        assert np.all(exact <= rdp_of_selection(orders, rdp, mean, gamma, shape))


def test_overflow_of_lots_counts_for_all_runs():
    tight = [(GaussianRelease(1.1), Poisson(0.01, overflow_delta=1e-11), 1000)]
    plain = dp.accounting.tuning_epsilon(RUN, 1e-6 - 50 * 1e-8, 50)
    assert dp.accounting.tuning_epsilon(tight, 1e-6, 50) == pytest.approx(plain)
    assert dp.accounting.tuning_epsilon(tight, 1e-6, 200) == np.inf


@pytest.mark.parametrize(("mean", "shape"), [(0.5, 1.0), (np.inf, 1.0), (5, -0.1)])
def test_wrong_arguments(mean, shape):
    with pytest.raises(ValueError, match="must be"):
        dp.accounting.tuning_epsilon(RUN, 1e-6, mean, shape)
