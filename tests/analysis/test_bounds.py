"""Theorems 2 and 3 of Xiang et al. against channels that are known exactly."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize

from keras_dp_ext import analysis


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0])
def test_randomized_response_never_reveals_more_than_theorem_2(epsilon):
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    # A uniform bit through a binary symmetric channel: log 2 minus its entropy.
    information = math.log(2) + keep * math.log(keep) + (1 - keep) * math.log(1 - keep)
    assert information <= analysis.mutual_information_bound(epsilon)


def test_no_privacy_loss_reveals_nothing_and_a_huge_one_is_not_an_error():
    assert analysis.mutual_information_bound(0.0) == 0.0
    assert analysis.mutual_information_bound(1e6) == math.inf
    with pytest.raises(ValueError, match="epsilon=-1"):
        analysis.mutual_information_bound(-1)


def test_one_normal_coordinate_follows_the_rate_distortion_function():
    for rate in (0.0, 0.3, 2.0):
        bound = analysis.distortion_rate_bound(
            rate, [1.5], analysis.gaussian_entropy([0.7])
        )
        assert bound.distortion == pytest.approx((1.5 * 0.7) ** 2 * math.exp(-2 * rate))


@pytest.mark.parametrize("rate", [0.1, 1.0, 7.0])
def test_water_filling_agrees_with_a_numerical_optimiser(rate):
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.2, 3.0, 6)
    deviations = rng.uniform(0.2, 3.0, 6)
    power = np.square(weights * deviations)

    # Independent route: choose the rates r_i >= 0 with sum r_i = rate freely.
    result = optimize.minimize(
        lambda rates: np.sum(power * np.exp(-2 * rates)),
        np.full(6, rate / 6),
        jac=lambda rates: -2 * power * np.exp(-2 * rates),
        bounds=[(0, None)] * 6,
        constraints={"type": "eq", "fun": lambda rates: rates.sum() - rate},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    bound = analysis.distortion_rate_bound(
        rate, weights, analysis.gaussian_entropy(deviations)
    )
    assert bound.distortion == pytest.approx(result.fun, rel=1e-5)


@pytest.mark.parametrize("rate", [1e-6, 0.1, 1.0, 7.0, 60.0])
def test_lemma_4_is_the_inverse_of_theorem_3(rate):
    rng = np.random.default_rng(5)
    weights = np.append(rng.uniform(0.2, 3.0, 6), 0.0)
    entropies = analysis.gaussian_entropy(rng.uniform(0.2, 3.0, 7))
    distortion = analysis.distortion_rate_bound(rate, weights, entropies).distortion
    found = analysis.rate_distortion_bound(distortion, weights, entropies)
    assert found == pytest.approx(rate, rel=1e-6)


def test_lemma_4_at_its_ends():
    entropies = analysis.gaussian_entropy([2.0, 1.0])
    assert analysis.rate_distortion_bound(5.0, [1, 1], entropies) == 0.0
    assert analysis.rate_distortion_bound(9.0, [1, 1], entropies) == 0.0
    assert analysis.rate_distortion_bound(0.0, [1, 1], entropies) == math.inf
    with pytest.raises(ValueError, match="distortion=-1"):
        analysis.rate_distortion_bound(-1, [1, 1], entropies)


def test_gaussian_noise_cannot_beat_the_distortion_rate_bound():
    """Additive noise has an exact rate, and its best estimator is linear."""
    variances = np.logspace(-4, 0, 30)
    for noise_variance in (1e-4, 1e-2, 1.0):
        rate = 0.5 * np.sum(np.log1p(variances / noise_variance))
        achieved = np.sum(variances * noise_variance / (variances + noise_variance))
        bound = analysis.distortion_rate_bound(
            rate, np.ones(30), analysis.gaussian_entropy(np.sqrt(variances))
        )
        assert bound.distortion <= achieved * (1 + 1e-9)


def test_a_coordinate_without_weight_costs_nothing():
    bound = analysis.distortion_rate_bound(
        1.0, [0.0, 1.0], analysis.gaussian_entropy([5.0, 1.0])
    )
    assert bound.per_coordinate[0] == 0.0
    assert bound.distortion == pytest.approx(math.exp(-2))


def test_the_plot_shows_that_proven_noise_lies_between_bound_and_isotropic():
    epsilons = np.geomspace(0.3, 4, 8)
    moments = np.logspace(-6, 0, 40)
    curves = analysis.distortion_curves(epsilons, moments)
    assert np.all(curves["bound"] < curves["proven"])
    assert np.all(curves["proven"] < 0.6 * curves["isotropic"])
    axes = analysis.plot_distortion(epsilons, moments)
    assert len(axes.lines) == 4
    np.testing.assert_allclose(axes.lines[2].get_ydata(), curves["proven"])


def test_analysis_starts_without_tensorflow():
    code = (
        "import sys, keras_dp_ext.analysis;"
        "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
