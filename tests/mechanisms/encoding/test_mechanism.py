"""The mechanism: Algorithm 1 step by step, and the privacy it claims."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

from keras_dp_ext import accounting, noise
from keras_dp_ext.bounding import Codebook
from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms.encoding import Encoded
from keras_dp_ext.noise import NoiseSchedule
from tests.nasr_algorithms import algorithm_1_step, algorithm_2

NOISES = ["gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech"]
SEED = tf.constant([3, 8])
STEP = tf.constant(0, tf.int64)
SHAPES = [(4, 5), (5,), (5, 2)]


def rows(count=6, scale=0.3, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (scale * rng.standard_t(4, [count, *shape])).astype(np.float32)
        for shape in SHAPES
    ]


def flat(parts):
    return np.concatenate([np.asarray(part).ravel() for part in parts])


def flat_rows(parts):
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def full_vectors(codebook, size):
    (block,) = codebook.blocks(size)
    return np.repeat(block.table, block.widths, axis=1)


def test_one_release_is_algorithm_1():
    gradients = rows()
    mechanism = Encoded(Codebook(size=40), noise.StudentT(9, 0.5), ranking="exact")
    vectors = full_vectors(mechanism.codebook, 35)

    total = mechanism.bound(MaterializedGradients(gradients))
    encoded = [algorithm_2(row, vectors) for row in flat_rows(gradients)]
    np.testing.assert_allclose(flat(total), np.sum(encoded, axis=0), rtol=2e-6)

    drawn = mechanism.draw_noise(SHAPES, SEED, STEP)
    noised = [a + b for a, b in zip(total, drawn, strict=True)]
    refined = mechanism.refine(noised, STEP)
    expected = algorithm_1_step(
        flat_rows(gradients),
        vectors,
        flat(drawn),
        lambda v: stats.kstest(v, stats.t(9, scale=0.5).cdf).statistic,
    )
    np.testing.assert_allclose(flat(refined), expected, rtol=5e-4, atol=1e-6)


def test_noise_is_one_draw_of_the_distribution():
    mechanism = Encoded(noise=noise.Laplace(0.7))
    drawn = mechanism.draw_noise([(300, 300), (50_000,)], SEED, STEP)
    assert [tuple(d.shape) for d in drawn] == [(300, 300), (50_000,)]
    assert stats.kstest(flat(drawn), stats.laplace(scale=0.7).cdf).pvalue > 1e-3
    assert not np.array_equal(flat(drawn)[:100], flat(drawn)[90_000:90_100])


def test_a_schedule_scales_noise_and_denoising_together():
    plain = Encoded(noise=noise.StudentT(9, 0.5))
    scheduled = Encoded(
        noise=noise.StudentT(9, 1.0), noise_schedule={0: 3.0, 10: 0.5, 20: 7.0}
    )
    step = tf.constant(15, tf.int64)
    first = plain.draw_noise(SHAPES, SEED, step)
    second = scheduled.draw_noise(SHAPES, SEED, step)
    np.testing.assert_allclose(flat(first), flat(second), rtol=1e-6)
    np.testing.assert_allclose(
        flat(plain.refine(first, step)), flat(scheduled.refine(second, step)), rtol=1e-4
    )


def test_the_accountant_composes_a_schedule():
    """Theorem 1: the orders' RDP adds up over releases with different noise."""
    codebook = Codebook(size=20)
    schedule = NoiseSchedule((0, 100, 150), (1.0, 0.7, 1.5))
    claim = Encoded(codebook, noise.StudentT(9), noise_schedule=schedule).claim(500)
    sampling = accounting.Poisson(0.01)
    ledger = accounting.Ledger()
    ledger.open(0, claim, sampling)
    ledger = accounting.Ledger.from_json(ledger.to_json())
    parts = [
        (Encoded(codebook, noise.StudentT(9, scale)).claim(500).proven, sampling, count)
        for scale, count in ((1.0, 100), (0.7, 50), (1.5, 30))
    ]
    assert ledger.epsilon(180, 1e-5) == accounting.epsilon(parts, 1e-5)
    # Resuming in the middle of the schedule finds the right noise.
    ledger.open(120, claim, accounting.Poisson(0.02))
    resumed = [
        (parts[0][0], sampling, 100),
        (parts[1][0], sampling, 20),
        (parts[1][0], accounting.Poisson(0.02), 30),
        (parts[2][0], accounting.Poisson(0.02), 30),
    ]
    assert ledger.epsilon(180, 1e-5) == pytest.approx(
        accounting.epsilon(resumed, 1e-5), rel=1e-12
    )


def test_a_quieter_schedule_costs_more():
    sampling = accounting.Poisson(0.01)
    costs = [
        accounting.epsilon(
            [(Encoded(noise_schedule=s).claim(1000).proven, sampling, 200)], 1e-5
        )
        for s in (None, {0: 1.0, 100: 0.5})
    ]
    assert costs[1] > 1.5 * costs[0]


def test_microbatches_of_several_examples_cost_more():
    entries = [
        [(Encoded().claim(1000, group).proven, accounting.FullBatch(), 1)]
        for group in (1, 2)
    ]
    single, group = (accounting.epsilon(entry, 1e-5) for entry in entries)
    # In high dimension: a Gaussian of half the multiplier.
    gaussian = accounting.GaussianRelease((10 / 12) ** -0.5 / 2)
    reference = accounting.epsilon([(gaussian, accounting.FullBatch(), 1)], 1e-5)
    assert single < group
    assert group == pytest.approx(reference, rel=0.03)


def test_student_t_costs_what_its_fisher_information_says():
    """Why the paper pairs df 9, scale 1 with a Gaussian of sigma 1.1."""
    sampling, steps = accounting.Poisson(256 / 60_000), 14_063
    encoded = Encoded().claim(26_010).proven
    gaussian = accounting.GaussianRelease((10 / 12) ** -0.5)
    epsilon, reference = (
        accounting.epsilon([(event, sampling, steps)], 1e-5)
        for event in (encoded, gaussian)
    )
    assert reference <= epsilon < 1.01 * reference


def one_dimensional_moment(distribution, tau, k):
    """E_z[(z(x - tau) / z(x))**k] by brute force."""

    def integrand(x):
        shifted = distribution.log_density(x - tau)
        here = distribution.log_density(x)
        return np.exp(k * shifted + (1 - k) * here)

    edges = [-np.inf, -60, -10, 0, tau / 2, tau, tau + 10, tau + 60, np.inf]
    return sum(
        integrate.quad(integrand, a, b, limit=500)[0]
        for a, b in itertools.pairwise(edges)
    )


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("dimension", [1, 8])
def test_claimed_rdp_covers_brute_force_for_any_gradient(name, dimension):
    """Two points: a batch with and without one example, for hostile examples."""
    # Scale 1.5 keeps the exponential tails' moments finite for the quadrature.
    mechanism = Encoded(Codebook(size=12), noise.get(name).with_scale(1.5))
    claim = mechanism.claim(dimension).proven
    rng = np.random.default_rng(1)
    hostile = np.concatenate(
        [
            1e6 * np.exp(rng.standard_normal([20, dimension])),
            rng.standard_t(1, [20, dimension]),
            1e6 * full_vectors(mechanism.codebook, dimension),
            1e6 * np.eye(dimension)[:1],
        ]
    ).astype(np.float32)
    encoded = [
        flat(mechanism.bound(MaterializedGradients([row[None]]))) for row in hostile
    ]
    for order in (2, 4):
        bound = accounting.rdp_per_release(claim, accounting.FullBatch(), [order])[0]
        moments = {}
        worst = 0.0
        for row in encoded:
            log_moment = 0.0
            for tau in np.abs(row):
                key = round(float(tau), 6)
                if key and key not in moments:
                    moments[key] = np.log(
                        one_dimensional_moment(mechanism.noise, float(tau), order)
                    )
                log_moment += moments.get(key, 0.0)
            worst = max(worst, log_moment / (order - 1))
        assert worst <= bound * (1 + 1e-5)
        # The claim is not idle either: some gradient reaches most of it.
        assert worst > 0.7 * bound


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("dimension", [1, 8])
def test_an_audit_of_two_points_finds_no_violation(name, dimension):
    """Many runs with and without one example, the likelihood ratio as attack."""
    runs, delta = 200_000, 1e-3
    mechanism = Encoded(Codebook(size=12), noise.get(name).with_scale(0.8))
    epsilon = accounting.epsilon(
        [(mechanism.claim(dimension).proven, accounting.FullBatch(), 1)], delta
    )
    canary = 1e3 * full_vectors(mechanism.codebook, dimension)[:1]
    shift = flat(mechanism.bound(MaterializedGradients([canary])))
    without = mechanism.noise.sample([runs, dimension], tf.constant([5, 6])).numpy()
    within = mechanism.noise.sample([runs, dimension], tf.constant([7, 8])).numpy()

    def score(x):
        density = mechanism.noise.log_density
        return np.sum(density(x - shift) - density(x), axis=1)

    present, absent = score(within + shift), score(without)
    lower = 0.0
    thresholds = np.quantile(present, [0.5, 0.8, 0.9, 0.95, 0.98])
    for threshold in thresholds:
        # Clopper-Pearson, with the failures of all thresholds below 1e-6.
        hits, misses = np.sum(present >= threshold), np.sum(absent >= threshold)
        true_rate = stats.beta.ppf(1e-7, hits, runs - hits + 1)
        false_rate = stats.beta.ppf(1 - 1e-7, misses + 1, runs - misses)
        lower = max(lower, np.log(max(true_rate - delta, 1e-12) / false_rate))
    assert lower <= epsilon
    # An attack that never succeeds would prove nothing.
    assert lower > 0.25 * epsilon


def test_the_configuration_survives_json():
    mechanism = Encoded(
        Codebook(["gaussian", "laplace"], size=9),
        noise.Cauchy(2.0),
        denoise="energy",
        noise_schedule={0: 1.0, 5: 2.0},
        ranking="exact",
    )
    config = json.loads(json.dumps(mechanism.get_config()))
    restored = Encoded(**config)
    assert restored.get_config() == mechanism.get_config()
    assert restored.claim(50) == mechanism.claim(50)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"denoise": "median"}, "`denoise` must be one of"),
        ({"noise": "loud"}, "`noise` must be"),
        ({"codebook": 1000}, "`codebook` must be"),
        ({"ranking": "random"}, "`ranking` must be"),
        ({"noise_schedule": [1.0]}, "`noise_schedule` must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Encoded(**arguments)


def test_layers_of_another_model_are_refused():
    mechanism = Encoded(Codebook(layer_sizes=(10, 20, 5)))
    with pytest.raises(ValueError, match="`layer_sizes`"):
        mechanism.bound(MaterializedGradients(rows()))
