"""Balls in bins cost what integration says, in both directions, and never more."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.accounting import (
    BallsInBins,
    Claim,
    ComposedRelease,
    CorrelatedRelease,
    FullBatch,
    FullBatchRelease,
    GaussianRelease,
    Ledger,
    NoiseRelease,
    Poisson,
    ScheduledRelease,
    epsilon_pld,
    epsilon_rdp,
    group_epsilon,
)
from keras_dp_ext.accounting.balls_in_bins import loss_distribution, rdp_of_pass
from keras_dp_ext.accounting.coverage import check_covered
from keras_dp_ext.data import overflow_delta
from keras_dp_ext.noise import Banded, Laplace

EPSILONS = np.array([-0.5, 0.0, 0.1, 0.3, 1.0, 2.0, 4.0])
LAPLACE = NoiseRelease(Laplace(1.0), ([1.0],))


def grid_of(dimensions, points):
    """Normal deviates in all places of a grid, and their probabilities.

    Sums over it are integrals: for smooth functions exact to many digits.
    """
    x = np.linspace(-10, 16, points)
    weights = stats.norm.pdf(x) * (x[1] - x[0])
    grids = np.meshgrid(*[x] * dimensions, indexing="ij")
    chances = np.meshgrid(*[weights] * dimensions, indexing="ij")
    return grids, np.prod(chances, axis=0) if dimensions else np.ones([])


def ratio(normal, multiplier):
    """The likelihood ratio of one release, of an example of norm 1."""
    return np.exp(normal / multiplier - 0.5 / multiplier**2)


def hockey_sticks(others, chances, bins, shift, epsilon):
    """Delta with the example against without it, and the other way round.

    The last release is integrated in closed form (it is Black and Scholes' call):
    `others` is the sum of the ratios of the others, `shift` that of the last one.
    """
    rest = bins * math.exp(epsilon) - others
    rest_back = bins * math.exp(-epsilon) - others

    def call(strike):
        """E[(W - strike)+] for the ratio W of the last release."""
        positive = np.maximum(strike, 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            upper = (-np.log(positive) + shift**2 / 2) / shift
            value = stats.norm.cdf(upper) - positive * stats.norm.cdf(upper - shift)
        value = np.where(shift > 0, value, np.maximum(1 - strike, 0))
        return np.where(strike > 0, value, 1 - strike)

    remove = np.sum(chances * call(rest)) / bins
    # (1 - e^eps S)+ by the parity of puts and calls.
    put = call(rest_back) - 1 + rest_back
    return remove, math.exp(epsilon) * np.sum(chances * put) / bins


@pytest.mark.parametrize("bins", [1, 2, 3])
@pytest.mark.parametrize("multiplier", [0.8, 2.0, 7.0])
def test_rdp_is_that_of_integration_and_covers_both_directions(bins, multiplier):
    normals, chances = grid_of(bins, 131)
    ratios = np.mean([ratio(z, multiplier) for z in normals], axis=0)
    for order in (1.1, 1.5, 2.0, 3.0, 3.5, 6.0):
        remove = np.log(np.sum(chances * ratios**order)) / (order - 1)
        add = np.log(np.sum(chances * ratios ** (1 - order))) / (order - 1)
        ours = float(rdp_of_pass(multiplier, bins, [order])[0])
        assert add <= remove * (1 + 1e-6)
        assert ours >= remove * (1 - 1e-6)
        if order == int(order):
            assert ours == pytest.approx(remove, rel=1e-4)


@pytest.mark.parametrize("bins", [5, 50, 1000])
@pytest.mark.parametrize("multiplier", [0.6, 1.0, 3.0])
def test_the_other_direction_is_cheaper_with_many_bins_too(bins, multiplier):
    """By what the convolution of `loss_distribution` gives, which is no moment."""
    from keras_dp_ext.accounting import balls_in_bins

    total = balls_in_bins._power(
        balls_in_bins._one_release(multiplier), bins, balls_in_bins._sum
    )
    ratios = total.values / bins
    for order in (1.5, 2.0, 4.0):
        remove, add = (
            np.log(np.sum(total.weights * ratios**power))
            for power in (order, 1 - order)
        )
        assert add <= remove
        if order == int(order) and multiplier >= 1:
            exact = (order - 1) * rdp_of_pass(multiplier, bins, [order])[0]
            # Spread values have a little more variance, never less.
            assert exact * (1 - 1e-6) <= remove <= exact * 1.01


@pytest.mark.parametrize("bins", [1, 2, 3])
@pytest.mark.parametrize("multiplier", [0.8, 2.0])
def test_losses_are_those_of_integration_in_both_directions(bins, multiplier):
    normals, chances = grid_of(bins - 1, 2601 if bins < 3 else 1301)
    others = sum((ratio(z, multiplier) for z in normals), np.zeros([]))
    losses = loss_distribution(multiplier, bins, 1e-4)
    for epsilon in EPSILONS:
        true = hockey_sticks(others, chances, bins, 1 / multiplier, epsilon)
        ours = (
            losses._pmf_remove.get_delta_for_epsilon(epsilon),
            losses._pmf_add.get_delta_for_epsilon(epsilon),
        )
        for bound, exact in zip(ours, true, strict=True):
            assert exact * (1 - 1e-5) - 1e-12 <= bound <= exact * 1.003 + 1e-9


@pytest.mark.parametrize("bins,multiplier", [(20, 0.7), (100, 1.0)])
def test_no_simulation_finds_more_than_is_accounted(bins, multiplier):
    random = np.random.default_rng(0)
    size = 2_000_000 // bins
    noise = random.normal(size=[size, bins], scale=multiplier).astype(np.float32)
    noise[:, 0] += 1  # By symmetry the example may as well be in the first lot.
    losses = np.log(np.mean(np.exp((noise - 0.5) / multiplier**2), axis=1))
    accounted = loss_distribution(multiplier, bins, 1e-4)
    for epsilon in (0.2, 0.5, 1.0, 1.5):
        # E_P[(1 - e^(epsilon - loss))+] is the mean of numbers between 0 and 1.
        sample = np.maximum(1 - np.exp(epsilon - losses), 0)
        error = sample.std() / math.sqrt(size)
        ours = accounted.get_delta_for_epsilon(epsilon)
        assert sample.mean() - 4 * error <= ours <= sample.mean() + 6 * error + 1e-6


@pytest.mark.parametrize("quiet", [0.0, 0.3, 1.0])
def test_gradients_that_follow_former_releases_gain_nothing(quiet):
    """An attacker's second gradient depends on the first release."""
    multiplier = 0.9
    (first,), chances = grid_of(1, 2601)
    losses = loss_distribution(multiplier, 2, 1e-4)
    for threshold in (-1.0, 0.0, 0.7):
        for loud_below in (True, False):
            lengths = np.where((first < threshold) == loud_below, 1.0, quiet)
            shifts, others = lengths / multiplier, ratio(first, multiplier)
            for epsilon in EPSILONS:
                found = hockey_sticks(others, chances, 2, shifts, epsilon)
                # The threshold is a jump for the sum: good to about 1e-3.
                bound = losses.get_delta_for_epsilon(epsilon)
                assert max(found) <= bound * 1.002 + 1e-9


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("multiplier", [0.5, 1.2])
def test_lots_that_overflow_cost_at_most_the_announced_delta(capacity, multiplier):
    """All allocations of three others, worth -1, and one example, worth +1."""
    bins, others = 2, 3
    x = np.linspace(-9, 9, 181)
    single = {mean: stats.norm.pdf(x, mean, multiplier) for mean in range(-5, 6)}

    def density(sums):
        return np.multiply.outer(single[sums[0]], single[sums[1]])

    without = np.zeros([len(x)] * 2)
    with_example = np.zeros_like(without)
    for places in itertools.product(range(bins), repeat=others):
        sizes = [places.count(bin) for bin in range(bins)]
        kept = [-min(size, capacity) for size in sizes]
        without += density(kept) / bins**others
        for own in range(bins):
            chance = 1 / bins ** (others + 1)
            # Of an over-full lot each example stays with the same probability.
            stays = min(1.0, capacity / (sizes[own] + 1))
            room = sizes[own] < capacity
            sums = list(kept)
            with_example += chance * (1 - stays) * density(sums)
            sums[own] += 1 if room else 2
            with_example += chance * stays * density(sums)
    cell = (x[1] - x[0]) ** 2
    announced = min(1.0, bins**2 * overflow_delta(others, 1 / bins, capacity))
    ideal = loss_distribution(multiplier, bins, 1e-4)
    for epsilon in EPSILONS[EPSILONS >= 0]:
        for p, q in ((with_example, without), (without, with_example)):
            found = cell * np.sum(np.maximum(p - math.exp(epsilon) * q, 0))
            assert found <= ideal.get_delta_for_epsilon(epsilon) + announced + 1e-5


def test_one_bin_is_the_gaussian_mechanism():
    orders = [1.5, 2.0, 8.0, 40.0]
    np.testing.assert_allclose(
        rdp_of_pass(1.3, 1, orders), np.array(orders) / (2 * 1.3**2), rtol=1e-9
    )
    release = GaussianRelease(1.3)
    for epsilon in (epsilon_rdp, epsilon_pld):
        one_bin = epsilon([(release, BallsInBins(1), 7)], 1e-5)
        assert one_bin == pytest.approx(
            epsilon([(release, FullBatch(), 7)], 1e-5), rel=2e-3
        )


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_it_is_about_as_private_as_poisson_sampling(accountant):
    release, steps = GaussianRelease(1.0), 100
    ours, poisson, shuffled = (
        dp.accounting.epsilon([(release, sampling, 20 * steps)], 1e-5, accountant)
        for sampling in (
            BallsInBins(steps),
            Poisson(1 / steps),
            dp.accounting.Shuffled(steps, 1 / steps),
        )
    )
    assert 0.8 * poisson < ours < 1.1 * poisson < 0.5 * shuffled


def test_pld_is_tighter_than_rdp_and_composes_both():
    entries = [
        (GaussianRelease(1.0), BallsInBins(200), 2000),
        (GaussianRelease(2.0), Poisson(0.01), 100),
        (GaussianRelease(20.0), FullBatch(), 1),
    ]
    assert 0.75 < epsilon_pld(entries, 1e-5) / epsilon_rdp(entries, 1e-5) < 1


def test_a_pass_counts_from_its_first_release_on():
    release, sampling = GaussianRelease(1.0), BallsInBins(10)
    by_count = [epsilon_rdp([(release, sampling, n)], 1e-5) for n in (1, 10, 11, 20)]
    assert by_count[0] == by_count[1] < by_count[2] == by_count[3]


def test_a_pass_that_was_cut_short_counts_beside_the_next():
    ledger = Ledger()
    claim, sampling = Claim(GaussianRelease(1.0)), BallsInBins(10)
    ledger.open(0, claim, sampling)
    ledger.open(4, claim, sampling)
    whole = Ledger()
    whole.open(0, claim, sampling)
    assert ledger.epsilon(14, delta=1e-5) == whole.epsilon(20, delta=1e-5)


def test_overflow_counts_for_each_pass():
    entry = [(GaussianRelease(1.0), BallsInBins(10, overflow_delta=1e-6), 50)]
    plain = [(GaussianRelease(1.0), BallsInBins(10), 50)]
    for epsilon in (epsilon_rdp, epsilon_pld):
        assert epsilon(entry, 1e-5) == pytest.approx(epsilon(plain, 5e-6), rel=1e-9)
        assert epsilon(entry, 4e-6) == math.inf
    # The chain rule for groups multiplies that delta, too.
    assert group_epsilon(entry, 1e-5, 3) > group_epsilon(plain, 1e-5, 3)


def test_very_little_noise_and_none():
    for epsilon in (epsilon_rdp, epsilon_pld):
        assert epsilon([(GaussianRelease(0.0), BallsInBins(10), 1)], 1e-5) == math.inf
        little = epsilon([(GaussianRelease(0.04), BallsInBins(10), 1)], 1e-5)
        assert 300 < little <= 450


@pytest.mark.parametrize(
    "event",
    [
        LAPLACE,
        ComposedRelease((FullBatchRelease(GaussianRelease(1.0)), LAPLACE)),
        ScheduledRelease((0, 10), (GaussianRelease(1.0), LAPLACE)),
        CorrelatedRelease(1.0, Banded(4)),
    ],
)
def test_noise_that_the_proof_does_not_cover_is_refused(event):
    with pytest.raises(ValueError, match=r"proven"):
        check_covered(event, BallsInBins(10))
    with pytest.raises(ValueError, match=r"proven"):
        epsilon_rdp([(event, BallsInBins(10), 20)], 1e-5)


def test_noise_may_change_between_passes_only():
    """Whoever was not in the first half of a pass is known to be in the second."""
    events = GaussianRelease(2.0), GaussianRelease(1.0)
    between, within = (Claim(ScheduledRelease((0, n), events)) for n in (20, 25))
    sampling = BallsInBins(10)
    ledger = Ledger()
    with pytest.raises(ValueError, match="whole passes of 10 steps"):
        ledger.open(0, within, sampling)
    assert not ledger.segments
    ledger.open(0, between, sampling)
    assert ledger.epsilon(40, delta=1e-5) == epsilon_rdp(
        [(events[0], sampling, 20), (events[1], sampling, 20)], 1e-5
    )


def test_dp_accounting_has_no_event_for_it():
    with pytest.raises(NotImplementedError, match="balls in bins"):
        Claim(GaussianRelease(1.0)).to_dp_event(BallsInBins(10), 20)


# What jax_privacy 2.0.0 says in an environment of its own: one pass of 20 bins at noise 0.7, by
# `experimental.monte_carlo.sample_generation.get_privacy_loss_sample` with
# `BallsInBinsSampling(iterations=20, cycle_length=20)`, `c_col=[1.0]` and 20,000 samples from seed 0.
# Epsilon; delta and its standard error with the example against without it; and back.
JAX_PRIVACY = [
    (0.2, 0.12166, 0.00140, 0.11000, 0.00114),
    (0.5, 0.05816, 0.00104, 0.03559, 0.00066),
    (1.0, 0.01530, 0.00056, 0.00193, 0.00014),
    (1.5, 0.00424, 0.00030, 0.0000437, 0.0000236),
]


@pytest.mark.parametrize(
    ("epsilon", "remove", "error", "add", "add_error"), JAX_PRIVACY
)
def test_the_monte_carlo_of_jax_privacy_agrees(epsilon, remove, error, add, add_error):
    losses = loss_distribution(0.7, 20, 1e-4)
    assert losses._pmf_remove.get_delta_for_epsilon(epsilon) == pytest.approx(
        remove, abs=4 * error
    )
    assert losses._pmf_add.get_delta_for_epsilon(epsilon) == pytest.approx(
        add, abs=4 * add_error
    )
