"""Denoising factors are the distances that SciPy computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext import noise
from keras_dp_ext.refining import Denoising

PAIRS = [
    (noise.Gaussian(2.0), stats.norm(scale=2.0)),
    (noise.StudentT(9, 0.5), stats.t(9, scale=0.5)),
    (noise.Laplace(3.0), stats.laplace(scale=3.0)),
    (noise.HyperbolicSecant(1.0), stats.hypsecant()),
]


def factor(distribution, distance, values, jit_compile=False, noise_factor=1.0):
    denoising = Denoising(distribution, distance)
    compiled = tf.function(
        lambda x: denoising.factor([x[:7], x[7:]], noise_factor),
        jit_compile=jit_compile,
        autograph=False,
    )
    return float(compiled(tf.constant(values, tf.float32)))


def noised(distribution, signal, size=5000):
    rng = np.random.default_rng(3)
    values = rng.permutation(distribution.ppf((np.arange(size) + 0.5) / size))
    return (values + signal * rng.standard_normal(size)).astype(np.float32)


@pytest.mark.parametrize(
    ("distribution", "reference"),
    PAIRS,
    ids=lambda value: getattr(value, "name", "scipy"),
)
@pytest.mark.parametrize("signal", [0.0, 0.3, 3.0, 100.0])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_ks_is_the_kolmogorov_smirnov_statistic(
    distribution, reference, signal, jit_compile
):
    values = noised(reference, signal)
    expected = stats.kstest(values, reference.cdf).statistic
    result = factor(distribution, "ks", values, jit_compile)
    # Between two knots the gap may rise by a cell's probability and one draw.
    assert result == pytest.approx(expected, abs=2e-5 + 1 / values.size)


@pytest.mark.parametrize(
    ("distribution", "reference"),
    PAIRS,
    ids=lambda value: getattr(value, "name", "scipy"),
)
@pytest.mark.parametrize("signal", [0.3, 3.0, 100.0])
def test_wasserstein_and_energy_are_scipys(distribution, reference, signal):
    values = noised(reference, signal) / distribution.scale
    exact = reference.ppf((np.arange(400_000) + 0.5) / 400_000) / distribution.scale
    unscaled = values * distribution.scale
    assert factor(distribution, "wasserstein", unscaled) == pytest.approx(
        stats.wasserstein_distance(values, exact), rel=5e-3
    )
    assert factor(distribution, "energy", unscaled) == pytest.approx(
        stats.energy_distance(values, exact), rel=5e-3
    )


@pytest.mark.parametrize("distance", ["ks", "wasserstein", "energy"])
def test_pure_noise_shrinks_and_signal_does_not(distance):
    distribution, reference = PAIRS[1]
    nothing = factor(distribution, distance, noised(reference, 0.0))
    something = factor(distribution, distance, noised(reference, 1.0))
    assert nothing < 0.01
    assert something > 10 * nothing


def test_scheduled_noise_is_compared_with_what_was_drawn():
    values = noised(PAIRS[0][1], 0.5)
    assert factor(PAIRS[0][0], "ks", 3.0 * values, noise_factor=3.0) == pytest.approx(
        factor(PAIRS[0][0], "ks", values), abs=1e-3
    )


def test_the_factor_depends_on_the_released_vector_only():
    """Post-processing: the drawn noise and the sum before it must not matter."""
    values = noised(PAIRS[0][1], 0.5)
    order = np.random.default_rng(0).permutation(values.size)
    assert factor(PAIRS[0][0], "ks", values) == factor(PAIRS[0][0], "ks", values[order])


@pytest.mark.parametrize("distance", ["ks", "wasserstein", "energy"])
def test_overflowing_values_give_a_finite_factor(distance):
    values = np.array([np.inf, -np.inf, 1e38, 0.0] * 5)
    assert np.isfinite(factor(noise.Cauchy(), distance, values))


def test_unknown_distances_are_refused():
    with pytest.raises(ValueError, match="`distance` must be one of"):
        Denoising(noise.Gaussian(), "median")


@keras.saving.register_keras_serializable("tests")
def excess_power(values, noise):
    """An oracle of one's own: how much more power there is than noise alone has."""
    power = tf.reduce_mean(tf.square(values)) / noise.standard_deviation**2
    return tf.maximum(power - 1.0, 0.0)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_any_function_of_the_noised_vector_is_an_oracle(jit_compile, tmp_path):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(50)])
    before = model.get_weights()
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=1.0,
        noise=dp.noise.Gaussian(0.2),
        denoise=excess_power,
        noise_schedule={0: 3.0},
        noise_seed=0,
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    data = np.random.default_rng(0).standard_normal([8, 2])
    model.fit(data, np.ones([8, 50]), batch_size=8, verbose=0)
    factor = optimizer.mechanism.denoising_factor
    moved = [8 * (a - b) for a, b in zip(before, model.get_weights(), strict=True)]
    noised = np.concatenate([part.ravel() for part in moved]) / factor
    assert factor == pytest.approx(np.mean(noised**2) / 0.6**2 - 1.0, rel=1e-3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.denoise is excess_power


def test_a_refinement_saves_its_oracle():
    refinement = dp.refining.KSDenoising(excess_power)
    assert dp.refining.get(refinement.serialize()) == refinement
