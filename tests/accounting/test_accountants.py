"""Epsilon from entries: conversions, samplings, extremes."""

import math
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
from scipy import special, stats

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import (
    CodebookRelease,
    FullBatch,
    GaussianRelease,
    NoiseRelease,
    Poisson,
    Shuffled,
    WithReplacement,
    epsilon,
    epsilon_from_rdp,
    rdp_per_release,
)
from keras_dp_ext.bounding.codebook import Codebook

MNIST = Poisson(256 / 60_000)
LAPLACE = NoiseRelease(noises.Laplace(2.0), [[0.5, 0.5]])


def pld_epsilon(sigma, rate, steps, delta):
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)),
        steps,
    )
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1, 0.9])
def test_the_tight_conversion_is_that_of_dp_accounting(delta):
    random = np.random.default_rng(0)
    orders = np.concatenate([[1.05], np.arange(1.1, 50, 0.7)])
    for scale in (1e-12, 1e-6, 1e-3, 1.0, 1e3):
        rdp = scale * orders * random.uniform(0.9, 1.1, orders.size)
        expected, order = dp_accounting.rdp.compute_epsilon(orders, rdp, delta)
        computed = epsilon_from_rdp(orders, rdp, delta)
        assert computed[0] == pytest.approx(expected, rel=1e-12)
        if expected > 0:
            assert computed[1] == order


def test_the_classic_conversion_is_that_of_the_papers():
    value, order = epsilon_from_rdp([2.0, 8.0], [0.1, 0.4], 1e-5, "classic")
    assert (value, order) == (pytest.approx(0.4 + math.log(1e5) / 7), 8.0)
    tight, _ = epsilon_from_rdp([2.0, 8.0], [0.1, 0.4], 1e-5)
    assert tight < value


def test_pld_is_tighter_than_rdp_and_equals_dp_accounting():
    entry = (GaussianRelease(1.1), MNIST, 14_063)
    by_pld = epsilon([entry], 1e-5, "pld")
    assert by_pld == pytest.approx(pld_epsilon(1.1, MNIST.rate, 14_063, 1e-5), rel=1e-6)
    assert by_pld < epsilon([entry], 1e-5, "rdp")


def test_pld_refuses_what_it_cannot_do():
    with pytest.raises(NotImplementedError, match="Gaussian"):
        epsilon([(LAPLACE, MNIST, 1)], 1e-5, "pld")
    with pytest.raises(NotImplementedError, match="sampling"):
        epsilon([(GaussianRelease(1.0), WithReplacement(1, 10), 1)], 1e-5, "pld")


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_entries_compose(accountant):
    one = (GaussianRelease(2.0), MNIST, 1000)
    other = (GaussianRelease(1.0), Poisson(0.01), 500)
    separate = [epsilon([entry], 1e-5, accountant) for entry in (one, other)]
    together = epsilon([one, other], 1e-5, accountant)
    assert max(separate) < together < sum(separate)
    halves = [(one[0], one[1], 400), (one[0], one[1], 600)]
    assert epsilon(halves, 1e-5, accountant) == pytest.approx(separate[0], rel=1e-3)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize(
    "event, sampling, releases, delta, expected",
    [
        (GaussianRelease(1.0), MNIST, 0, 1e-5, 0.0),
        (GaussianRelease(1.0), Poisson(0.0), 100, 1e-5, 0.0),
        (GaussianRelease(math.inf), MNIST, 100, 1e-5, 0.0),
        (GaussianRelease(0.0), MNIST, 1, 1e-5, math.inf),
        (GaussianRelease(0.0), MNIST, 0, 1e-5, 0.0),
        (GaussianRelease(0.0), Poisson(0.0), 10, 1e-5, 0.0),
        (GaussianRelease(1.0), MNIST, 1, 0.0, math.inf),
        (GaussianRelease(1.0), MNIST, 100, 1.0, 0.0),
        (GaussianRelease(math.inf), MNIST, 100, 0.0, 0.0),
    ],
)
def test_extremes_are_defined(accountant, event, sampling, releases, delta, expected):
    assert epsilon([(event, sampling, releases)], delta, accountant) == expected


def test_tiny_noise_gives_a_huge_epsilon_not_a_small_one():
    for multiplier in (1e-2, 1e-4, 1e-8, 1e-30):
        spent = epsilon([(GaussianRelease(multiplier), MNIST, 100)], 1e-5)
        assert spent > 1e3


@pytest.mark.parametrize("delta", [-0.1, 1.1, math.nan])
def test_delta_must_be_a_probability(delta):
    with pytest.raises(ValueError, match="delta"):
        epsilon([(GaussianRelease(1.0), MNIST, 1)], delta)


@pytest.mark.parametrize("count", [-1, 0.5])
def test_counts_must_be_counts(count):
    with pytest.raises(ValueError, match="count"):
        epsilon([(GaussianRelease(1.0), MNIST, count)], 1e-5)


def test_unknown_accountants_are_refused():
    with pytest.raises(ValueError, match="accountant"):
        epsilon([], 1e-5, "moments")


def test_tanh_as_published_has_no_guarantee():
    # Amian's settings: sensitivity sqrt(26,010) in place of 1.
    multiplier = 1.1 / math.sqrt(26_010)
    spent = epsilon([(GaussianRelease(multiplier), MNIST, 14_063)], 1e-5)
    assert spent == pytest.approx(1.7e8, rel=0.05)


def test_directional_noise_of_equal_size_is_better_than_published():
    sampled = Poisson(512 / 55_000)
    spent = epsilon([(GaussianRelease(8.61), sampled, 6446)], 1e-5)
    assert spent == pytest.approx(0.32, abs=0.005)
    quiet = epsilon([(GaussianRelease(0.22), sampled, 6446)], 1e-5)
    assert quiet == pytest.approx(670, rel=0.05)


def test_a_figure_that_was_handed_out_cannot_be_changed():
    first = rdp_per_release(LAPLACE, MNIST, [2.0, 3.0])
    with pytest.raises(ValueError, match="read-only"):
        first[:] = 0.0


@pytest.mark.parametrize("overflow", [-1e-9, 1.5, math.nan])
def test_overflow_never_adds_to_delta(overflow):
    with pytest.raises(ValueError, match="overflow_delta"):
        Poisson(0.1, overflow_delta=overflow)


def test_lots_of_fixed_capacity_use_up_delta():
    release = GaussianRelease(1.0)
    capped = epsilon([(release, Poisson(0.01, overflow_delta=1e-9), 1000)], 1e-5)
    reduced = epsilon([(release, Poisson(0.01), 1000)], 1e-5 - 1e-6)
    assert capped == pytest.approx(reduced)
    spent = epsilon([(release, Poisson(0.01, overflow_delta=1e-8), 1000)], 1e-5)
    assert spent == math.inf


# Other samplings ---------------------------------------------------------------


def test_shuffled_data_is_one_participation_in_every_epoch():
    shuffled, release = Shuffled(steps_per_epoch=100, rate=0.01), GaussianRelease(2.0)
    for releases, participations in ((1, 1), (100, 1), (101, 2), (1000, 10)):
        assert epsilon([(release, shuffled, releases)], 1e-5) == pytest.approx(
            epsilon([(release, FullBatch(), participations)], 1e-5)
        )


def test_shuffling_an_epoch_can_really_cost_what_is_reported():
    # An adversary who sees every update of one epoch, without other examples,
    # learns as much as from the one update that holds the example: the exact
    # delta of one Gaussian release is reached in the limit of one step.
    sigma, delta = 2.0, 1e-5
    reported = epsilon([(GaussianRelease(sigma), Shuffled(1, 1.0), 1)], delta, "pld")
    exact = dp_accounting.get_epsilon_gaussian(sigma, delta)
    assert reported == pytest.approx(exact, rel=1e-3)


def inclusion_hockey_sticks(sampling, sigma, log_factor):
    """Exact deltas of one release with replacement, in both directions."""
    x = np.linspace(-12 * sigma, 12 * sigma + 20, 200_001)
    counts = np.arange(0, 12)
    weights = stats.binom.pmf(counts, sampling.batch_size, 1 / sampling.num_examples)
    mixture = sum(
        w * stats.norm.pdf(x, j, sigma) for w, j in zip(weights, counts, strict=True)
    )
    base = stats.norm.pdf(x, 0, sigma)
    factor = math.exp(log_factor)
    step = x[1] - x[0]
    return (
        step * np.sum(np.maximum(mixture - factor * base, 0)),
        step * np.sum(np.maximum(base - factor * mixture, 0)),
    )


@pytest.mark.parametrize("batch", [1, 5, 50])
@pytest.mark.parametrize("sigma", [0.7, 1.5, 6.0])
def test_sampling_with_replacement_is_bounded_by_exact_integration(batch, sigma):
    sampling, delta = WithReplacement(batch, 100), 1e-4
    bound = epsilon([(GaussianRelease(sigma), sampling, 1)], delta)
    assert max(inclusion_hockey_sticks(sampling, sigma, bound)) <= delta
    # Not a bound by much: ten times smaller would be wrong.
    assert max(inclusion_hockey_sticks(sampling, sigma, bound / 10)) > delta


def test_sampling_with_replacement_costs_more_than_poisson_sampling():
    release, sampling = GaussianRelease(1.1), WithReplacement(256, 60_000)
    poisson = epsilon([(release, sampling.if_poisson(), 14_100)], 1e-5)
    proven = epsilon([(release, sampling, 14_100)], 1e-5)
    unamplified = epsilon([(release, FullBatch(), 14_100)], 1e-5)
    assert poisson < proven < unamplified / 100


def test_repeated_inclusions_scale_the_shifts_of_any_noise():
    codebook = Codebook(size=3)
    sampling = WithReplacement(64, 6400)
    by_codebook = CodebookRelease(noises.StudentT(9, 2.0), codebook, 50)
    magnitudes, counts = codebook.profiles(50)
    by_profiles = NoiseRelease(
        noises.StudentT(9, 2.0),
        [np.repeat(magnitudes, count) for count in counts.astype(int)],
    )
    assert epsilon([(by_codebook, sampling, 50)], 1e-5) == pytest.approx(
        epsilon([(by_profiles, sampling, 50)], 1e-5), rel=1e-6
    )


def test_groups_of_examples_double_the_sensitivity():
    magnitudes = np.abs(np.random.default_rng(0).standard_normal(50)) / 7
    added = NoiseRelease(noises.Gaussian(1.0), [magnitudes])
    replaced = NoiseRelease(noises.Gaussian(1.0), [magnitudes], replaced=True)
    assert replaced.as_gaussian().noise_multiplier == pytest.approx(
        added.as_gaussian().noise_multiplier / 2
    )
    student = [
        NoiseRelease(noises.StudentT(9, 1.0), [factor * magnitudes], replaced=replaced)
        for factor, replaced in ((1.0, True), (2.0, False))
    ]
    spent = [epsilon([(event, Poisson(0.01), 100)], 1e-5) for event in student]
    assert spent[0] == pytest.approx(spent[1], rel=1e-4)
    assert spent[0] >= spent[1]


def test_accounting_does_not_import_tensorflow():
    code = (
        "import sys, keras_dp_ext.accounting as a;"
        "a.epsilon([(a.GaussianRelease(1.0), a.Poisson(0.1), 3)], 1e-5);"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_epsilon_grows_with_releases_and_falls_with_noise():
    releases = [
        epsilon([(LAPLACE, Poisson(0.01), n)], 1e-5) for n in (1, 10, 1000, 10_000)
    ]
    assert np.all(np.diff(releases) > 0)
    noisy = [
        epsilon([(NoiseRelease(noises.Cauchy(s), [[1.0]]), MNIST, 100)], 1e-5)
        for s in (0.5, 1.0, 2.0, 8.0)
    ]
    assert np.all(np.diff(noisy) < 0)


def test_gaussian_differential_privacy_is_never_undercut():
    # T releases without sampling are one Gaussian release of sigma / sqrt(T),
    # whose exact delta is known in closed form (Balle and Wang, 2018).
    def delta_of(spent, shift):
        return special.ndtr(shift / 2 - spent / shift) - math.exp(
            spent + special.log_ndtr(-shift / 2 - spent / shift)
        )

    for sigma, steps in ((1.0, 1), (4.0, 10), (20.0, 1000)):
        shift = math.sqrt(steps) / sigma
        for accountant in ("rdp", "pld"):
            spent = epsilon(
                [(GaussianRelease(sigma), FullBatch(), steps)], 1e-5, accountant
            )
            assert delta_of(spent, shift) <= 1e-5
