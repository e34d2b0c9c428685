"""The six noises once more, in mpmath, written from the textbooks."""

import mpmath as mp
import pytest

from keras_dp_ext import noise as noises


def density(noise):
    """The density as a function of an mpmath number."""
    scale = mp.mpf(noise.scale)
    if isinstance(noise, noises.Gaussian):
        return lambda x: mp.exp(-((x / scale) ** 2) / 2) / (scale * mp.sqrt(2 * mp.pi))
    if isinstance(noise, noises.StudentT):
        df = mp.mpf(noise.df)
        constant = mp.gamma((df + 1) / 2) / (
            mp.gamma(df / 2) * mp.sqrt(df * mp.pi) * scale
        )
        return lambda x: constant * (1 + (x / scale) ** 2 / df) ** (-(df + 1) / 2)
    if isinstance(noise, noises.Laplace):
        return lambda x: mp.exp(-abs(x) / scale) / (2 * scale)
    if isinstance(noise, noises.Cauchy):
        return lambda x: 1 / (mp.pi * scale * (1 + (x / scale) ** 2))
    if isinstance(noise, noises.VarianceGamma):
        return lambda x: (1 + abs(x) / scale) * mp.exp(-abs(x) / scale) / (4 * scale)
    if isinstance(noise, noises.HyperbolicSecant):
        return lambda x: mp.sech(x / scale) / (mp.pi * scale)
    raise TypeError(noise)


def breakpoints(noise, shift, power=1):
    """Where to cut the line so that mpmath sees every peak and kink."""
    shift = mp.mpf(shift)
    around = {mp.mpf(0), shift}
    for center in (0, shift, power * shift):
        around |= {center + step for step in (-12, -6, -3, -1, 1, 3, 6, 12, 25)}
    far = [] if isinstance(noise, noises.Gaussian) else [mp.mpf(100), mp.mpf(1000)]
    inner = sorted([*around, *far, *(-x for x in far)])
    if isinstance(noise, noises.Gaussian):
        return [inner[0] - 40, *inner, inner[-1] + 40]
    return [-mp.inf, *inner, mp.inf]


def expectation(noise, shift, function, power=1):
    """E_z[function(L)] for L = z(x - shift) / z(x), to about 30 digits."""
    z = density(noise)
    shift = mp.mpf(shift)

    def integrand(x):
        base = z(x)
        return base * function(z(x - shift) / base)

    return mp.quad(integrand, breakpoints(noise, shift, power))


@pytest.fixture(name="expectation", scope="session")
def expectation_fixture():
    """`expectation(noise, shift, function, power)` by mpmath."""
    return expectation
