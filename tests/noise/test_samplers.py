"""What is drawn has the density that is accounted, tails included."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_dp_ext import noise

NOISES = [
    noise.Gaussian(1.3),
    noise.StudentT(df=9, scale=0.7),
    noise.StudentT(df=1, scale=1.0),
    noise.StudentT(df=2.5, scale=1.0),
    noise.Laplace(0.5),
    noise.Cauchy(2.0),
    noise.VarianceGamma(1.5),
    noise.HyperbolicSecant(0.8),
]
DRAWS = 1_000_000


def draw(distribution, seed=(7, 11), jit_compile=False, draws=DRAWS):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def sample(seed):
        return distribution.sample([draws], seed)

    return sample(tf.constant(seed)).numpy()


@pytest.mark.parametrize("distribution", NOISES, ids=str)
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_a_million_draws_follow_the_cdf(distribution, jit_compile):
    sample = draw(distribution, jit_compile=jit_compile)
    assert sample.dtype == np.float32
    assert np.all(np.isfinite(sample))
    assert stats.kstest(sample, distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("distribution", NOISES, ids=str)
@pytest.mark.parametrize("tail", [1e-2, 1e-3, 1e-4, 1e-5])
def test_tails_have_their_share_on_both_sides(distribution, tail):
    # A Kolmogorov-Smirnov test is blind to tails; count them.
    sample = draw(distribution, seed=(23, 5), draws=4 * DRAWS)
    quantile = distribution.upper_quantile(tail)
    for exceeding in (np.sum(sample > quantile), np.sum(sample < -quantile)):
        assert stats.binomtest(int(exceeding), sample.size, tail).pvalue > 1e-4


@pytest.mark.parametrize("distribution", NOISES, ids=str)
@pytest.mark.parametrize(
    ("seed", "draws"), [((7, 11), DRAWS), ((-7, 11), 1001), ((7, -11), 1001)]
)
def test_a_seed_means_the_same_noise_with_and_without_xla(distribution, seed, draws):
    graph, xla = (draw(distribution, seed, jit, draws) for jit in (False, True))
    np.testing.assert_allclose(graph, xla, rtol=2e-5, atol=2e-6)


def test_different_seeds_draw_independent_noise():
    first, second = draw(NOISES[0], (1, 2)), draw(NOISES[0], (1, 3))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(DRAWS)


def test_neighbouring_coordinates_are_independent():
    sample = draw(noise.VarianceGamma())
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 5 / np.sqrt(DRAWS)
    assert abs(np.corrcoef(abs(sample[:-1]), abs(sample[1:]))[0, 1]) < 5e-3


def test_the_tail_of_the_gaussian_does_not_end_where_float32_uniforms_end():
    """The attack: an output beyond the sampler's range betrays the data.

    A sampler from 23-bit uniforms never exceeds sqrt(-2 log 1e-7) = 5.68. A mean
    that is shifted by one example then gives outputs that are impossible
    otherwise, at any epsilon.
    """
    from keras_dp_ext.noise import uniform

    zero = tf.zeros([1], tf.uint32)
    smallest = float(uniform.open_uniform(zero, zero)[0])
    assert smallest == 2.0**-65
    assert np.sqrt(-2 * np.log(smallest)) > 9.4
    # And the largest word cannot turn a logarithm positive.
    ones = tf.constant([2**32 - 1], tf.uint32)
    assert float(uniform.open_uniform(ones, ones)[0]) == 1.0


def test_uniforms_below_two_to_the_minus_32_are_uniform_too():
    from keras_dp_ext.noise import uniform

    low = uniform.random_words([DRAWS], tf.constant([1, 2]), 1)[0]
    tiny = uniform.open_uniform(tf.zeros_like(low), low).numpy() * 2.0**32
    assert stats.kstest(tiny, stats.uniform.cdf).pvalue > 1e-3


def test_dynamic_shapes_are_accepted():
    @tf.function(autograph=False)
    def sample(shape):
        return noise.Laplace().sample(shape, tf.constant([1, 2]))

    assert sample(tf.constant([3, 4])).shape == (3, 4)
