"""Moments of the likelihood ratio: bounds, and tight ones."""

import dataclasses

import mpmath as mp
import numpy as np
import pytest
from scipy import integrate

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting.moments import MomentError, log_moments
from keras_dp_ext.noise import Noise

NOISES = [
    noises.Gaussian(1.0),
    noises.StudentT(df=9, scale=1.0),
    noises.Laplace(1.0),
    noises.Cauchy(1.0),
    noises.VarianceGamma(1.0),
    noises.HyperbolicSecant(1.0),
]
NAMES = [noise.name for noise in NOISES]


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
@pytest.mark.parametrize("shift", [1e-3, 0.3, 3.0])
@pytest.mark.parametrize("power", [1.1, 2, 7])
def test_moments_bound_forty_digit_quadrature_from_above(
    noise, shift, power, expectation
):
    with mp.workdps(40):
        k = mp.mpf(power)
        exact = mp.log(expectation(noise, shift, lambda r: r**k, power))
    computed = log_moments(noise, [shift], [power])[0, 0]
    assert 0 <= float(computed / exact - 1) < 1e-7


def test_gaussian_moments_are_k_k_minus_1_tau_squared_half():
    shifts = np.geomspace(1e-5, 2.0, 8)
    powers = np.array([1.01, 2, 3, 50, 255])
    exact = np.outer(shifts**2, powers * (powers - 1) / 2)
    np.testing.assert_allclose(
        log_moments(noises.Gaussian(1.0), shifts, powers), exact, rtol=1e-7
    )


def test_a_narrow_peak_on_the_edge_of_a_panel_is_not_lost():
    # The integrand's peak, at k * tau = 2048, is a power of two like the panels'
    # ends: inner nodes alone miss half of it.
    computed = log_moments(noises.Gaussian(1.0), [2.0], [1024])[0, 0]
    assert computed >= 1024 * 1023 / 2 * 4
    assert computed == pytest.approx(1024 * 1023 / 2 * 4, rel=1e-8)


def test_scale_only_sets_the_unit():
    for noise in NOISES:
        stretched = noise.with_scale(37.0)
        np.testing.assert_allclose(
            log_moments(noise, [0.3], [2, 9]),
            log_moments(stretched, [0.3 * 37.0], [2, 9]),
            rtol=1e-8,
        )


@pytest.mark.parametrize("noise", NOISES, ids=NAMES)
def test_larger_shifts_cost_more_in_every_divergence(noise):
    # The theorem in `log_vector_moments`, for hockey-stick divergences.
    def hockey_stick(shift, factor):
        x = np.concatenate([np.linspace(-60, 60, 240_001)])
        gain = np.exp(noise.log_density(x - shift)) - factor * np.exp(
            noise.log_density(x)
        )
        return integrate.trapezoid(np.maximum(gain, 0.0), x)

    for factor in (1.0, 1.2, 2.0):
        values = [hockey_stick(shift, factor) for shift in (0.1, 0.3, 1.0, 3.0, 9.0)]
        assert np.all(np.diff(values) >= -1e-9)


@dataclasses.dataclass(frozen=True)
class _Custom(Noise):
    """A noise made for a test, with a log-density only."""

    name = "custom-for-tests"
    kind: str = "logistic"
    scale: float = 1.0

    def _standard_log_density(self, x):
        x = np.abs(x)
        if self.kind == "logistic":
            return -x - 2.0 * np.log1p(np.exp(-x))
        if self.kind == "too-heavy":
            return np.log(0.6) - x
        if self.kind == "bimodal":
            return -0.5 * (x - 2.0) ** 2 - np.log(2 * np.sqrt(2 * np.pi) * 0.97725)
        if self.kind == "uniform":
            with np.errstate(divide="ignore"):
                return np.log(np.where(x <= 1.0, 0.5, 0.0))
        return np.where(x > 0, 0.0, np.nan)

    _standard_cdf = _standard_sample = _standard_upper_quantile = None
    _standard_fisher_information = _standard_deviation = None


def test_any_object_with_a_log_density_can_be_accounted():
    # Logistic density: E[L**2] by SciPy.
    noise = _Custom("logistic")

    def integrand(x):
        return np.exp(2 * noise.log_density(x - 0.7) - noise.log_density(x))

    exact = np.log(integrate.quad(integrand, -50, 50, points=[0, 0.7])[0])
    assert log_moments(noise, [0.7], [2])[0, 0] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("kind", ["too-heavy", "bimodal", "uniform", "undefined"])
def test_a_density_that_cannot_be_bounded_raises(kind):
    with pytest.raises(MomentError):
        log_moments(_Custom(kind), [0.5], [2])
