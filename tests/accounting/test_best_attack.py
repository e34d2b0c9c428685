"""Operating points of the best attack, against closed forms and brute force."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from keras_dp_ext.accounting import (
    BestAttack,
    FullBatch,
    GaussianRelease,
    NoiseRelease,
    Poisson,
    Shuffled,
    WithReplacement,
    best_attack,
    epsilon_rdp,
)
from keras_dp_ext.accounting.best_attack import from_epsilon, percent, rounded_up
from keras_dp_ext.noise import Laplace

DELTA = 1e-5


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_gaussian_mechanism_has_its_closed_form(mu):
    attack = best_attack([(GaussianRelease(1 / mu), FullBatch(), 1)], DELTA)
    assert attack.computed_from == "pld"
    for rate, most in attack.true_positive_rates.items():
        exact = stats.norm.cdf(stats.norm.ppf(rate) + mu)
        assert exact * (1 - 1e-6) <= most <= exact * 1.005
    assert mu * (1 - 1e-4) <= attack.gdp_mu <= 1.01 * mu


def test_releases_of_shuffled_data_compose_to_one_gaussian():
    # 10 epochs: one participation in each.
    entry = GaussianRelease(4.0), Shuffled(steps_per_epoch=7, rate=1 / 7), 70
    mu = math.sqrt(10) / 4
    attack = best_attack([entry], DELTA)
    exact = stats.norm.cdf(stats.norm.ppf(0.01) + mu)
    assert exact * (1 - 1e-6) <= attack.true_positive_rates[0.01] <= 1.005 * exact
    assert attack.gdp_mu == pytest.approx(mu, rel=0.01)


def _neyman_pearson(member, other, false_positive_rate):
    """TPR of the likelihood ratio test between two discrete distributions."""
    order = np.argsort(-member / other, kind="stable")
    alarms, found = np.cumsum(other[order]), np.cumsum(member[order])
    return float(np.interp(false_positive_rate, alarms, found))


@pytest.mark.parametrize("rate,sigma", [(0.3, 1.0), (0.05, 0.6), (0.5, 2.0)])
def test_never_below_the_true_attack_on_two_sampled_releases(rate, sigma):
    x = np.linspace(-9 * sigma, 1 + 9 * sigma, 1501)
    out = stats.norm.pdf(x, 0, sigma)
    inside = (1 - rate) * out + rate * stats.norm.pdf(x, 1, sigma)
    out, inside = out / out.sum(), inside / inside.sum()
    member, other = np.outer(inside, inside).ravel(), np.outer(out, out).ravel()
    attack = best_attack([(GaussianRelease(sigma), Poisson(rate), 2)], DELTA)
    for alarms, most in attack.true_positive_rates.items():
        truth = max(
            _neyman_pearson(member, other, alarms),
            _neyman_pearson(other, member, alarms),
        )
        assert truth * (1 - 1e-4) <= most <= 1.01 * truth
        assert most <= stats.norm.cdf(stats.norm.ppf(alarms) + attack.gdp_mu) + DELTA


def test_many_sampled_releases_are_far_better_than_epsilon_says():
    entries = [(GaussianRelease(1.1), Poisson(256 / 60_000), 14_063)]
    attack = best_attack(entries, DELTA)
    loose = from_epsilon(epsilon_rdp(entries, DELTA), DELTA)
    assert attack.true_positive_rates[0.01] < 0.6 * loose.true_positive_rates[0.01]
    # The central limit theorem of Bu et al. (2019) underestimates a little.
    limit = 256 / 60_000 * math.sqrt(14_063 * (math.exp(1.1**-2) - 1))
    assert limit < attack.gdp_mu < 1.5 * limit < loose.gdp_mu


def test_overflow_of_lots_counts():
    step = GaussianRelease(1.0)
    plain = best_attack([(step, Poisson(0.1), 10)], 1e-3).true_positive_rates
    lots = best_attack([(step, Poisson(0.1, 1e-5), 10)], 1e-3).true_positive_rates
    # The other bound has it as well, divided by e^epsilon.
    for rate in plain:
        assert plain[rate] < lots[rate] <= plain[rate] + 1.0001e-4


@pytest.mark.parametrize(
    "entry",
    [
        (NoiseRelease(Laplace(2.0), ([1.0],)), Poisson(0.1), 5),
        (GaussianRelease(4.0), WithReplacement(10, 1000), 5),
    ],
)
def test_what_has_no_pld_follows_from_epsilon_and_delta(entry):
    attack = best_attack([entry], DELTA)
    epsilon = epsilon_rdp([entry], DELTA)
    assert attack.computed_from == "epsilon"
    assert (
        attack == from_epsilon(epsilon, DELTA) == best_attack([entry], DELTA, epsilon)
    )
    for rate, most in attack.true_positive_rates.items():
        assert most == pytest.approx(
            min(
                math.exp(epsilon) * rate + DELTA,
                1 - math.exp(-epsilon) * (1 - rate - DELTA),
            )
        )


def test_mu_of_a_pair_is_that_of_pure_differential_privacy():
    # Randomised response: Phi(mu / 2) = e^eps / (1 + e^eps) at epsilon 0, Dong et
    # al.; its curve touches the Gaussian one at the kink.
    epsilon = 1.0
    mu = -2 * stats.norm.ppf(1 / (1 + math.exp(epsilon)))
    assert from_epsilon(epsilon, 1e-12).gdp_mu == pytest.approx(mu, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.0, 3.0, 50.0, 800.0, 1e5])
def test_any_epsilon_has_words(epsilon):
    attack = from_epsilon(epsilon, DELTA)
    assert attack.true_positive_rates[0.01] == pytest.approx(
        min(1.0, math.exp(min(epsilon, 700)) * 0.01 + DELTA)
    )
    assert (attack.gdp_mu == 0) == (epsilon == 0)


@pytest.mark.parametrize("delta", [1e-3, 1e-8, 1e-12])
def test_mu_is_found_for_any_delta(delta):
    attack = best_attack([(GaussianRelease(1.0), FullBatch(), 1)], delta)
    assert attack.gdp_mu == pytest.approx(1.0, rel=0.01)


def test_nothing_released_and_no_noise():
    nothing = best_attack([], DELTA)
    assert nothing.true_positive_rates[0.01] == 0.01 and nothing.gdp_mu == 0
    for attack in (
        best_attack([(GaussianRelease(0.0), Poisson(0.1), 1)], DELTA),
        best_attack([(GaussianRelease(1e-3), FullBatch(), 1)], DELTA),
        from_epsilon(math.inf, DELTA),
    ):
        assert set(attack.true_positive_rates.values()) == {1.0}
        assert attack.gdp_mu == math.inf
        assert BestAttack.deserialize(json.loads(json.dumps(attack.serialize())))


def test_words_are_rounded_up():
    assert rounded_up(0.12341) == pytest.approx(0.124)
    assert percent(0.01) == "1%" and percent(0.001) == "0.1%"
    assert percent(0.09161) == "9.17%" and percent(0.99999) == "100%"
    attack = best_attack([(GaussianRelease(1.0), FullBatch(), 1)], DELTA)
    assert "at most 9.24% of those" in attack.describe()
    assert BestAttack.deserialize(attack.serialize()) == attack
