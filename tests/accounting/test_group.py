"""Group privacy: above what k examples really cost, and not far above."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from keras_dp_ext import noise
from keras_dp_ext.accounting import (
    CodebookRelease,
    FullBatch,
    GaussianRelease,
    NoiseRelease,
    Poisson,
    ScheduledRelease,
    WithReplacement,
    epsilon_pld,
    epsilon_rdp,
    group_epsilon,
)
from keras_dp_ext.bounding import Codebook

DELTA = 1e-5


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_gaussian_costs_what_it_costs_at_so_many_times_the_sensitivity(size):
    group = [(GaussianRelease(4.0 / size), FullBatch(), 10)]
    renyi = group_epsilon([(GaussianRelease(4.0), FullBatch(), 10)], DELTA, size)
    assert renyi == pytest.approx(epsilon_rdp(group, DELTA), rel=2e-3)
    assert renyi >= epsilon_pld(group, DELTA)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.1, 0.01, 300), (3.0, 0.2, 40)])
def test_sampled_groups_are_bounded_by_the_exact_mixture(sigma, rate, steps, size):
    """Of k examples, a Poisson sample holds Binomial(k, rate): dp_accounting's PLD of
    that mixture, rounded down, is what the group has really lost."""
    inclusions = np.arange(size + 1)
    exact = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma,
        inclusions.tolist(),
        stats.binom(size, rate).pmf(inclusions).tolist(),
        pessimistic_estimate=False,
        value_discretization_interval=5e-3,
        use_connect_dots=False,
    ).self_compose(steps)
    lost = exact.get_epsilon_for_delta(DELTA)
    training = [(GaussianRelease(sigma), Poisson(rate), steps)]
    renyi, chain = (group_epsilon(training, DELTA, size, r) for r in ("renyi", "chain"))
    assert lost <= renyi and lost <= chain < math.inf
    assert group_epsilon(training, DELTA, size) == min(renyi, chain)


def test_many_releases_of_a_group_are_bounded_closely():
    """9.287 by us; 8.524 by dp_accounting's PLD of the mixture of three."""
    training = [(GaussianRelease(1.1), Poisson(256 / 60_000), 60 * 234)]
    assert 8.52 < group_epsilon(training, DELTA, 3) < 9.3


@pytest.mark.parametrize("size", [2, 5])
def test_the_chain_is_the_textbooks(size):
    """At the delta of one example that it found, the rule's own delta is the target."""
    training = [(GaussianRelease(2.0), Poisson(0.01), 100)]
    single = group_epsilon(training, DELTA, size, "chain") / size
    low, high = 1e-60, DELTA
    for _ in range(200):  # delta of one example at this epsilon, by bisection
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle) if epsilon_rdp(training, middle) <= single else (middle, high)
        )
    total = sum(high * math.exp(i * single) for i in range(size))
    assert total == pytest.approx(DELTA, rel=1e-2)
    assert total <= size * math.exp((size - 1) * single) * high * (1 + 1e-9)


def test_laplace_groups_cost_no_more_than_pure_privacy_says():
    release = NoiseRelease(noise.Laplace(scale=10.0), [[1.0]])
    entries = [(release, FullBatch(), 1)]
    # Pure epsilon 1 / 10 for one example, so 3 / 10 for three; never below the exact.
    x = np.linspace(-300, 300, 2_000_001)
    shifted = stats.laplace(3.0, 10.0).pdf(x)
    plain = stats.laplace(0.0, 10.0).pdf(x)
    claimed = group_epsilon(entries, DELTA, 3)
    step = x[1] - x[0]
    delta = np.sum(np.maximum(shifted - np.exp(claimed) * plain, 0.0)) * step
    assert delta <= DELTA
    assert claimed < 0.36


def test_all_kinds_of_entries_are_counted():
    codebook = CodebookRelease(noise.StudentT(df=9, scale=1.0), Codebook(size=2), 40)
    both = ScheduledRelease((0, 5), (GaussianRelease(2.0), GaussianRelease(1.0)))
    entries = [
        (codebook, Poisson(0.01), 10),
        (both, Poisson(0.01), 10),
        (GaussianRelease(20.0), FullBatch(), 1),
    ]
    figures = [group_epsilon(entries, DELTA, size) for size in (1, 2, 3)]
    assert figures[0] == epsilon_rdp(entries, DELTA)
    assert 2 * figures[0] < figures[1] < figures[2] < math.inf
    for part in entries:
        assert group_epsilon([part], DELTA, 3) < figures[2]


def test_sampling_with_a_delta_of_its_own_goes_by_the_chain():
    for sampling in (WithReplacement(10, 1000), Poisson(0.01, overflow_delta=1e-12)):
        entries = [(GaussianRelease(4.0), sampling, 20)]
        assert group_epsilon(entries, DELTA, 2, "renyi") == math.inf
        chain = group_epsilon(entries, DELTA, 2)
        assert 2 * epsilon_rdp(entries, DELTA) < chain < math.inf
    # The capacity's own delta counts for every member of the group.
    entries = [(GaussianRelease(1.0), Poisson(0.5, overflow_delta=1e-8), 20)]
    assert group_epsilon(entries, DELTA, 4) == math.inf


def test_the_ends_of_the_range():
    nothing, broken = [], [(GaussianRelease(0.0), FullBatch(), 1)]
    assert group_epsilon(nothing, DELTA, 3) == 0
    assert group_epsilon(broken, DELTA, 3) == math.inf
    assert group_epsilon([(GaussianRelease(1.0), FullBatch(), 1)], 0.0, 2) == math.inf
    large = group_epsilon([(GaussianRelease(900.0), FullBatch(), 1)], DELTA, 600)
    exact = epsilon_rdp([(GaussianRelease(900.0 / 600), FullBatch(), 1)], DELTA)
    assert exact * 0.999 < large < math.inf
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="group_size"):
            group_epsilon(nothing, DELTA, wrong)
    with pytest.raises(ValueError, match="rule"):
        group_epsilon(nothing, DELTA, 2, "none")
