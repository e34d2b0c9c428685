"""RDP of any noise under Poisson sampling."""

import itertools

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, special

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import (
    CodebookRelease,
    GaussianRelease,
    NoiseRelease,
    Poisson,
    Profile,
    epsilon,
    rdp_per_release,
)
from keras_dp_ext.accounting.moments import log_moments
from keras_dp_ext.accounting.rdp import ORDER_TIERS, noise_rdp
from keras_dp_ext.accounting.shift_moments import _interpolate, log_vector_moments
from keras_dp_ext.bounding.codebook import Codebook

NOISES = [
    noises.Gaussian(1.0),
    noises.StudentT(df=9, scale=1.0),
    noises.Laplace(1.0),
    noises.Cauchy(1.0),
    noises.VarianceGamma(1.0),
    noises.HyperbolicSecant(1.0),
]
NAMES = [noise.name for noise in NOISES]
INTEGERS = [2, 3, 4, 6, 10, 20, 40, 64]


def unit_vector(size, seed=0):
    values = np.random.default_rng(seed).standard_normal(size)
    return values / np.linalg.norm(values)


def dp_accounting_rdp(event, orders):
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    accountant.compose(event)
    return accountant.rdp


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_gaussian_by_quadrature_equals_dp_accounting(rate, sigma):
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    expected = dp_accounting_rdp(
        dp_accounting.PoissonSampledDpEvent(rate, gaussian), INTEGERS
    )
    # Not rounded: few enough coordinates for a bin each.
    for vector in ([1.0], unit_vector(50)):
        event = NoiseRelease(noises.Gaussian(sigma), [vector])
        computed = noise_rdp(event, rate, INTEGERS)
        assert np.all(computed >= expected * (1 - 1e-9))
        np.testing.assert_allclose(computed, expected, rtol=1e-4)
    # Rounded up to a grid: at most 1% of epsilon.
    rounded = noise_rdp(
        NoiseRelease(noises.Gaussian(sigma), [unit_vector(5000)]), rate, INTEGERS
    )
    for steps in (1, 1000, 100_000):
        exact, bound = (
            dp_accounting.rdp.compute_epsilon(INTEGERS, steps * rdp, 1e-5)[0]
            for rdp in (expected, rounded)
        )
        assert exact <= bound <= 1.01 * exact


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("steps", [1, 1000, 100_000])
def test_epsilon_of_gaussian_noise_on_coordinates_equals_dp_accounting(
    rate, sigma, steps
):
    event = NoiseRelease(noises.Gaussian(sigma), [unit_vector(50)])
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    spent = []
    # At its own orders, which are few above 64, and at ours.
    for orders in (None, sum(ORDER_TIERS, ())):
        accountant = dp_accounting.rdp.RdpAccountant(orders)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian), steps)
        spent.append(accountant.get_epsilon(1e-5))
    computed = epsilon([(event, Poisson(rate), steps)], 1e-5)
    assert computed == pytest.approx(spent[1], rel=1e-3)
    assert computed <= 1.01 * spent[0]


@pytest.mark.parametrize("scale", [0.5, 1.0, 5.0])
def test_laplace_equals_dp_accounting(scale):
    orders = [1.5, 2, 3.7, 10, 40]
    event = NoiseRelease(noises.Laplace(scale), [[1.0]])
    expected = dp_accounting_rdp(dp_accounting.LaplaceDpEvent(scale), orders)
    np.testing.assert_allclose(noise_rdp(event, 1.0, orders), expected, rtol=1e-7)


@pytest.mark.parametrize("steps", [1000, 14_063, 60_000])
def test_student_t_costs_what_a_gaussian_of_its_fisher_information_costs(steps):
    student = CodebookRelease(noises.StudentT(9, 1.0), Codebook(), 26_010)
    sampling = Poisson(256 / 60_000)
    gaussian = epsilon([(GaussianRelease(np.sqrt(1.2)), sampling, steps)], 1e-5)
    computed = epsilon([(student, sampling, steps)], 1e-5)
    assert computed == pytest.approx(gaussian, rel=0.02)


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("order", [2, 5])
def test_one_dimension_agrees_with_forty_digits_in_both_directions(
    noise, rate, order, expectation
):
    shift = 0.8
    with mp.workdps(40):
        q, a = mp.mpf(rate), mp.mpf(order)
        mix = expectation(noise, shift, lambda r: (1 - q + q * r) ** a, order)
        reverse = expectation(noise, shift, lambda r: (1 - q + q * r) ** (1 - a))
        forward, backward = (float(mp.log(v) / (a - 1)) for v in (mix, reverse))
    computed = noise_rdp(NoiseRelease(noise, [[shift]]), rate, [order])[0]
    assert computed == pytest.approx(forward, rel=1e-6)
    # Adding an example costs at least as much as removing one (Theorem 2).
    assert computed >= forward >= backward


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
def test_fractional_orders_are_bounded_from_above(noise, expectation):
    shift, rate = 0.8, 0.1
    orders = [1.1, 1.5, 2.5, 4.4]
    computed = noise_rdp(NoiseRelease(noise, [[shift]]), rate, orders)
    for order, value in zip(orders, computed, strict=True):
        with mp.workdps(30):
            q, a = mp.mpf(rate), mp.mpf(order)
            exact = mp.log(
                expectation(
                    noise, shift, lambda r, q=q, a=a: (1 - q + q * r) ** a, order
                )
            ) / (a - 1)
        assert value >= exact


def test_two_coordinates_agree_with_brute_force():
    noise, shifts, rate, order = noises.StudentT(3, 1.0), (0.9, 0.4), 0.2, 4
    u = np.linspace(-9, 9, 2001)
    x, weight = np.sinh(u), np.cosh(u) * (u[1] - u[0])
    logs = [noise.log_density(x - s) - noise.log_density(x) for s in shifts]
    base = np.exp(noise.log_density(x)) * weight
    ratio = np.exp(logs[0][:, None] + logs[1][None])
    total = base @ ((1 - rate + rate * ratio) ** order) @ base
    computed = noise_rdp(NoiseRelease(noise, [shifts]), rate, [order])[0]
    assert computed == pytest.approx(np.log(total) / (order - 1), rel=1e-6)


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
def test_dominated_vectors_cost_no_more_than_their_profile(noise):
    random = np.random.default_rng(1)
    profile = np.sort(random.exponential(size=40))
    powers = np.array([2, 5, 17])
    event = NoiseRelease(noise, [profile])
    bound = log_vector_moments(noise, *event.magnitudes_and_counts(), powers)
    for _ in range(5):
        dominated = random.permutation(profile * random.uniform(0, 1, 40))
        smaller = NoiseRelease(noise, [np.sort(np.abs(dominated))])
        cost = log_vector_moments(noise, *smaller.magnitudes_and_counts(), powers)
        assert np.all(cost <= bound)


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
@pytest.mark.parametrize("size", [0.2, 4.0])
def test_replaced_rows_are_bounded_whatever_the_order_of_coordinates(noise, size):
    # Two profiles in all relative orders: the difference of two rows has
    # coordinates of up to a_i + b_i.
    first, second = size * np.array([1.0, 0.5, 0.1]), size * np.array([0.7, 0.7, 0.4])
    powers = np.array([2, 3, 8])
    event = NoiseRelease(noise, [first, second], replaced=True)
    bound = log_vector_moments(noise, *event.magnitudes_and_counts(), powers, rows=2)
    for one, two in itertools.product([first, second], repeat=2):
        for order in itertools.permutations(range(3)):
            shift = NoiseRelease(noise, [one + two[list(order)]])
            cost = log_vector_moments(noise, *shift.magnitudes_and_counts(), powers)
            assert np.all(cost <= bound * (1 + 1e-8))


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
@pytest.mark.parametrize("size", [0.3, 2.0, 5.0])
def test_rows_that_differ_may_shift_more_coordinates_than_equal_ones(noise, size):
    # Drawn three times with replacement, dropout moves the large entry each time.
    row, powers = size * np.array([1.0, 0.002, 0.002]), np.array([2, 3, 20])
    event = NoiseRelease(noise, [row])
    bound = log_vector_moments(noise, *event.magnitudes_and_counts(), powers, rows=3)
    for shift in (3 * row, row + np.roll(row, 1) + np.roll(row, 2)):
        cost = log_moments(noise, shift, powers).sum(axis=0)
        assert np.all(cost <= bound * (1 + 1e-9))
    # Which the accountant of sampling with replacement uses.
    thrice = noise_rdp(event, 1.0, powers, times=3)
    np.testing.assert_allclose(thrice, bound / (powers - 1))


def test_slight_concavity_is_paid_for():
    noise, row = noises.Cauchy(1.0), np.array([0.69497605, 0.73254849])
    event, powers = NoiseRelease(noise, [row], replaced=True), np.array([2, 3, 8, 20])
    bound = log_vector_moments(noise, *event.magnitudes_and_counts(), powers, rows=2)
    cost = log_moments(noise, row + row[::-1], powers).sum(axis=0)
    assert np.all(cost <= bound)


def test_every_magnitude_has_its_moment():
    # Powers of two of the scale lie at the ends of the interpolated octaves.
    noise, powers = noises.StudentT(9, 1.0), np.array([2.0, 5.0])
    magnitudes = 2.0 ** np.arange(-33.0, -30.0)
    values = _interpolate(noise, magnitudes, powers)
    exact = log_moments(noise, magnitudes, powers)
    assert np.all((values >= exact) & (values <= 1.001 * exact))


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
def test_noise_without_end_costs_next_to_nothing(noise):
    event = NoiseRelease(noise.with_scale(1e15), [unit_vector(200), [1.0]])
    assert np.all(noise_rdp(event, 0.5, [2, 5, 64]) < 1e-10)


def test_several_profiles_cost_the_worst_of_them():
    noise = noises.Laplace(1.0)
    flat, peaked = np.full(100, 0.1), np.array([1.0])
    both = noise_rdp(NoiseRelease(noise, [flat, peaked]), 0.05, INTEGERS)
    single = [
        noise_rdp(NoiseRelease(noise, [p]), 0.05, INTEGERS) for p in (flat, peaked)
    ]
    np.testing.assert_allclose(both, np.maximum(*single), rtol=1e-6)


@pytest.mark.parametrize("size", [3000, 26_010])
def test_rounding_magnitudes_costs_less_than_one_percent(size):
    # Exact: for Gaussian noise only the norm counts.
    event = NoiseRelease(noises.Gaussian(1.1), [unit_vector(size)])
    (profile,) = event.shifts
    assert 1 <= profile.l2_norm < 1.004
    orders = np.arange(2, 30)
    exact = dp_accounting_rdp(
        dp_accounting.PoissonSampledDpEvent(0.004, dp_accounting.GaussianDpEvent(1.1)),
        orders,
    )
    rounded = noise_rdp(event, 0.004, orders)
    spent = [
        dp_accounting.rdp.compute_epsilon(orders, 14_000 * rdp, 1e-5)[0]
        for rdp in (exact, rounded)
    ]
    assert spent[0] <= spent[1] < 1.01 * spent[0]


def test_a_profile_dominates_the_vector_it_was_made_from():
    random = np.random.default_rng(0)
    for values in (
        random.standard_normal(50_000),
        random.standard_cauchy(50_000),
        np.exp(random.normal(0, 20, 5000)),
        np.ones(1000),
    ):
        profile = Profile.from_values(values)
        grown = np.repeat(profile.magnitudes, profile.counts)
        magnitudes = np.sort(np.abs(values))
        assert grown.size == values.size
        assert np.all(grown >= magnitudes)


def test_the_profile_of_zeros_costs_nothing():
    event = NoiseRelease(noises.Cauchy(1.0), [np.zeros(10)])
    assert np.all(noise_rdp(event, 0.5, [2, 10]) == 0)


def test_chords_between_powers_lie_above_the_moments():
    # Orders above 64 use interpolated powers; dp_accounting uses all of them.
    orders = [128, 256, 512]
    event = NoiseRelease(noises.Gaussian(8.0), [[1.0]])
    exact = dp_accounting_rdp(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(8.0)),
        orders,
    )
    computed = noise_rdp(event, 0.01, orders)
    assert np.all(computed >= exact * (1 - 1e-9))
    np.testing.assert_allclose(computed[:1], exact[:1], rtol=0.01)


def test_cost_does_not_depend_on_the_size_of_the_model(monkeypatch):
    evaluations = []
    original = noises.StudentT._standard_log_density

    def counted(self, x):
        evaluations.append(np.size(x))
        return original(self, x)

    monkeypatch.setattr(noises.StudentT, "_standard_log_density", counted)
    totals = []
    # Degrees of freedom that no other test uses: nothing is cached.
    for df, size in ((9.25, 10_000), (9.5, 10_000_000)):
        evaluations.clear()
        event = CodebookRelease(noises.StudentT(df, 1.0), Codebook(size=20), size)
        noise_rdp(event, 0.01, [2, 30])
        totals.append(sum(evaluations))
    assert totals[1] < 2 * totals[0]


def test_sampling_rate_zero_costs_nothing_and_one_is_not_amplified():
    event = NoiseRelease(noises.StudentT(), [[0.5, 0.2]])
    orders = ORDER_TIERS[0]
    assert np.all(rdp_per_release(event, Poisson(0.0), orders) == 0)
    almost = rdp_per_release(event, Poisson(1 - 1e-9), [2, 5, 30])
    full = rdp_per_release(event, Poisson(1.0), [2, 5, 30])
    np.testing.assert_allclose(almost, full, rtol=1e-5)


def test_binomial_weights_are_those_of_lemma_4():
    # a = 2 by hand: 1 + q^2 (M_2 - 1).
    noise, shift, rate = noises.HyperbolicSecant(1.0), 0.6, 0.07
    second, _ = integrate.quad(
        lambda x: np.exp(2 * noise.log_density(x - shift) - noise.log_density(x)),
        -60,
        60,
        points=[0, shift],
    )
    computed = noise_rdp(NoiseRelease(noise, [[shift]]), rate, [2])[0]
    assert computed == pytest.approx(special.log1p(rate**2 * (second - 1)), rel=1e-6)
