"""Densities, quantiles and moments agree with SciPy and with each other."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from keras_dp_ext import noise

PAIRS = [
    (noise.Gaussian(1.3), stats.norm(scale=1.3)),
    (noise.StudentT(df=9, scale=0.7), stats.t(9, scale=0.7)),
    (noise.Laplace(0.5), stats.laplace(scale=0.5)),
    (noise.Cauchy(2.0), stats.cauchy(scale=2.0)),
    (noise.HyperbolicSecant(0.8), stats.hypsecant(scale=0.8)),
]
NOISES = [pair[0] for pair in PAIRS] + [noise.VarianceGamma(1.5)]
GRID = np.concatenate([np.linspace(-30, 30, 601), [-1e-9, 1e-9]])


@pytest.mark.parametrize(
    ("distribution", "reference"),
    PAIRS,
    ids=lambda value: getattr(value, "name", "scipy"),
)
def test_densities_are_scipys(distribution, reference):
    np.testing.assert_allclose(
        distribution.log_density(GRID), reference.logpdf(GRID), rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(
        distribution.cdf(GRID), reference.cdf(GRID), rtol=1e-12, atol=1e-14
    )


def test_variance_gamma_is_the_sum_of_two_laplace_draws():
    laplace = stats.laplace(scale=1.5)
    for x in (0.0, 0.3, -2.0, 7.0):
        convolution, _ = integrate.quad(
            lambda y, x=x: laplace.pdf(y) * laplace.pdf(x - y),
            -60,
            60,
            points=sorted({0.0, x}),
            limit=200,
        )
        density = np.exp(noise.VarianceGamma(1.5).log_density(x))
        assert density == pytest.approx(convolution, rel=1e-8)


@pytest.mark.parametrize("distribution", NOISES, ids=str)
def test_cdf_integrates_the_density(distribution):
    for upper in (-3.0, -0.5, 0.0, 0.5, 3.0):
        mass, _ = integrate.quad(
            lambda x: math.exp(distribution.log_density(x)), 0.0, upper, limit=200
        )
        assert float(distribution.cdf(upper)) == pytest.approx(0.5 + mass, abs=1e-9)


@pytest.mark.parametrize("distribution", NOISES, ids=str)
def test_upper_quantile_inverts_the_lower_tail(distribution):
    tail = np.logspace(-14, math.log10(0.5), 100)
    quantile = distribution.upper_quantile(tail)
    np.testing.assert_allclose(distribution.cdf(-quantile), tail, rtol=1e-9)


@pytest.mark.parametrize("distribution", NOISES, ids=str)
def test_fisher_information_is_the_mean_squared_score(distribution):
    def integrand(x):
        h = 1e-5 * (1 + x)
        upper, lower = distribution.log_density(np.array([x + h, x - h]))
        score = (upper - lower) / (2 * h)
        return score**2 * math.exp(distribution.log_density(x))

    half = sum(
        integrate.quad(integrand, a, b, limit=200)[0]
        for a, b in ((1e-4, 1), (1, 10), (10, 1000))
    )
    assert distribution.fisher_information == pytest.approx(2 * half, rel=2e-3)


@pytest.mark.parametrize("distribution", NOISES, ids=str)
def test_standard_deviation_is_that_of_the_density(distribution):
    if math.isinf(distribution.standard_deviation):
        assert isinstance(distribution, noise.Cauchy)
        return
    second, _ = integrate.quad(
        lambda x: x**2 * math.exp(distribution.log_density(x)), 0, 300, limit=400
    )
    assert distribution.standard_deviation**2 == pytest.approx(2 * second, rel=1e-5)


@pytest.mark.parametrize("distribution", NOISES, ids=str)
def test_noises_survive_json(distribution):
    restored = noise.get(json.loads(json.dumps(distribution.serialize())))
    assert restored == distribution
    assert hash(restored) == hash(distribution)


@pytest.mark.parametrize(
    "name", ["gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech"]
)
def test_names_of_the_command_line(name):
    assert noise.get(name).name == name
    assert noise.get(name).with_scale(3.0).scale == 3.0


def test_the_default_student_t_is_the_papers():
    assert noise.get("student-t") == noise.StudentT(df=9, scale=1.0)


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "1", None])
def test_a_scale_that_gives_no_density_is_refused(scale):
    with pytest.raises(ValueError, match="`scale` must be a positive"):
        noise.Gaussian(scale)


@pytest.mark.parametrize("df", [0.5, 0, -1, math.nan])
def test_too_few_degrees_of_freedom_are_refused(df):
    with pytest.raises(ValueError, match="`df` must be"):
        noise.StudentT(df=df)


@pytest.mark.parametrize("identifier", ["normal", 3, None, {"class_name": "Nope"}])
def test_unknown_noises_are_refused(identifier):
    with pytest.raises(ValueError, match="`noise` must be a Noise"):
        noise.get(identifier)


def test_noise_starts_without_tensorflow():
    script = (
        "import sys, keras_dp_ext as dp; dp.noise.StudentT().cdf(1.0);"
        "dp.bounding.Codebook().profiles(1000);"
        "from keras_dp_ext.mechanisms.encoding import Encoded; Encoded().claim(100);"
        "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
