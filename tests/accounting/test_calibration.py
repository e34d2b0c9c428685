"""Calibration: as little noise, as many releases as the target allows."""

import pytest

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import (
    CodebookRelease,
    FullBatch,
    GaussianRelease,
    Poisson,
    WithReplacement,
    epsilon,
)
from keras_dp_ext.accounting.calibration import calibrate_noise, calibrate_releases
from keras_dp_ext.accounting.default_delta import default_delta
from keras_dp_ext.bounding.codebook import Codebook

MNIST = Poisson(256 / 60_000)


@pytest.mark.parametrize("target", [0.05, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("sampling", [MNIST, FullBatch(), WithReplacement(9, 3000)])
def test_noise_meets_the_target_and_hardly_more(target, sampling):
    def spent(sigma):
        return epsilon([(GaussianRelease(sigma), sampling, 200)], 1e-5)

    sigma = calibrate_noise(GaussianRelease, sampling, 200, target, 1e-5)
    assert spent(sigma) <= target < spent(sigma * 0.998)


@pytest.mark.parametrize(
    "noise",
    [
        noises.StudentT(9, 1.0),
        noises.Laplace(1.0),
        noises.Cauchy(1.0),
        noises.VarianceGamma(1.0),
        noises.HyperbolicSecant(1.0),
    ],
    ids=lambda noise: noise.name,
)
def test_every_noise_can_be_calibrated(noise):
    codebook = Codebook(size=20)

    def event(scale):
        return CodebookRelease(noise.with_scale(scale), codebook, 26_010)

    scale = calibrate_noise(event, MNIST, 14_063, 2.0, 1e-5)
    spent = [
        epsilon([(event(factor * scale), MNIST, 14_063)], 1e-5)
        for factor in (1.0, 0.995)
    ]
    assert spent[0] <= 2.0 < spent[1]


@pytest.mark.slow
def test_pld_needs_less_noise():
    sigmas = [
        calibrate_noise(
            GaussianRelease, Poisson(0.01), 50, 2.0, 1e-5, accountant, tolerance=0.02
        )
        for accountant in ("rdp", "pld")
    ]
    assert sigmas[1] < 0.97 * sigmas[0]


@pytest.mark.parametrize("at_least", [0, 50, 17_000])
def test_one_more_release_would_exceed_the_target(at_least):
    def spent(releases):
        return epsilon([(GaussianRelease(1.1), MNIST, releases)], 1e-5)

    most = calibrate_releases(spent, 3.0, at_least)
    assert spent(most) <= 3.0 < spent(most + 1)
    assert calibrate_releases(spent, 3.0, at_most=100) == 100
    assert calibrate_releases(spent, 3.0, at_least=most + 5) == most + 4


def test_impossible_targets_are_refused():
    with pytest.raises(ValueError, match="target_epsilon"):
        calibrate_noise(GaussianRelease, MNIST, 10, 0.0, 1e-5)
    with pytest.raises(ValueError, match="target_epsilon"):
        calibrate_noise(GaussianRelease, MNIST, 10, 1.0, 0.0)
    with pytest.raises(ValueError, match="releases"):
        calibrate_noise(GaussianRelease, MNIST, 0, 1.0, 1e-5)


@pytest.mark.parametrize(
    "size, delta", [(1, 0.1), (9, 0.1), (10, 0.01), (60_000, 1e-5), (100_000, 1e-6)]
)
def test_the_default_delta_is_below_one_over_the_number_of_examples(size, delta):
    assert default_delta(size) == delta < 1 / size or size == 1
