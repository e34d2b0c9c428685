"""Strategies: their matrices, how good they are, and how far an example moves them."""

import itertools
import json
import time

import numpy as np
import pytest
from scipy import linalg

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import participation
from keras_dp_ext.noise.correlated import toeplitz

NOISES = [
    noises.Banded(bands=1, steps=12),
    noises.Banded(bands=4, steps=12),
    noises.Banded(bands=4, steps=12, momentum=0.9),
    # Bands that do not fall, as nobody's optimiser makes them.
    noises.Banded(bands=4, coefficients=(0.5, 1.0, 0.0, 2.0)),
    noises.BandedInverse(bands=4),
    noises.BufferedToeplitz(buffers=2, steps=12),
    noises.BufferedToeplitz(buffers=3, steps=12, separation=3),
    noises.TreeAggregation(),
    noises.TreeAggregation(restart_every=3),
    noises.TreeAggregation(restart_every=5),
]
ids = [f"{type(noise).__name__}{index}" for index, noise in enumerate(NOISES)]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=ids)


@every_noise
def test_the_matrix_is_lower_triangular_not_negative_and_inverted(noise):
    matrix = noise.matrix(11)
    assert np.all(matrix >= 0)
    np.testing.assert_array_equal(matrix, np.tril(matrix))
    np.testing.assert_allclose(
        noise.noise_from(np.eye(11)), np.linalg.inv(matrix), atol=1e-12
    )
    # A longer run has the shorter one in it: stopping early changes nothing.
    np.testing.assert_allclose(noise.matrix(14)[:11, :11], matrix, atol=1e-15)
    if noise.is_toeplitz:
        column = linalg.toeplitz(matrix[:, 0], np.zeros(11))
        np.testing.assert_allclose(matrix, column, atol=1e-15)
    if noise.strategy_bands is not None:
        assert np.all(np.tril(matrix, -noise.strategy_bands) == 0)


@every_noise
def test_values_survive_json(noise):
    again = noises.get_any(json.loads(json.dumps(noise.serialize())))
    assert again == noise and hash(again) == hash(noise)
    assert noise.with_scale(3.0).with_scale(noise.scale) == noise


def worst(matrix, patterns) -> float:
    return max(
        np.linalg.norm(matrix[:, list(pattern)].sum(axis=1)) for pattern in patterns
    )


@every_noise
@pytest.mark.parametrize("period", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("steps", [1, 5, 8, 11])
def test_sensitivity_of_a_fixed_order_against_all_patterns(noise, steps, period):
    patterns = [range(first, steps, period) for first in range(min(period, steps))]
    # Participations may also be left out; that never makes it worse.
    subsets = [
        subset
        for pattern in patterns
        for size in range(1, len(pattern) + 1)
        for subset in itertools.combinations(pattern, size)
    ]
    expected = worst(noise.matrix(steps), subsets)
    found = participation.every(noise, steps, period)
    assert expected <= found <= expected * (1 + 1e-8)


@every_noise
@pytest.mark.parametrize(("steps", "length"), [(3, 4), (8, 4), (10, 4), (9, 3)])
def test_sensitivity_of_shuffled_data_is_never_less_than_any_pattern(
    noise, steps, length
):
    passes = [range(i, min(i + length, steps)) for i in range(0, steps, length)]
    expected = worst(noise.matrix(steps), itertools.product(*passes))
    found = participation.once_per_pass(noise, steps, length)
    assert expected <= found <= 1.5 * expected
    if len(passes) == 1:
        assert found == pytest.approx(expected)


@every_noise
def test_vectors_and_signs_move_it_no_further_than_equal_ones(noise):
    rng = np.random.default_rng(0)
    steps, period = 9, 3
    matrix = noise.matrix(steps)
    most = participation.every(noise, steps, period)
    for _ in range(300):
        rows = np.zeros((steps, 3))
        chosen = slice(rng.integers(period), None, period)
        rows[chosen] = rng.standard_normal(rows[chosen].shape)
        rows[chosen] /= np.linalg.norm(rows[chosen], axis=1, keepdims=True)
        assert np.linalg.norm(matrix @ rows) <= most * (1 + 1e-12)
        signs = np.sign(rows[:, :1])
        assert np.linalg.norm(matrix @ signs) <= most * (1 + 1e-12)


def test_a_restarted_tree_costs_as_much_in_each_pass():
    noise = noises.TreeAggregation(restart_every=8)
    # 4 nodes above the first release of 8; three passes.
    assert participation.once_per_pass(noise, 24, 8) == pytest.approx(np.sqrt(3 * 4))
    assert participation.once_per_pass(noise, 80_000, 8) == pytest.approx(200.0)


def test_negative_coefficients_are_refused():
    with pytest.raises(ValueError, match="none negative"):
        noises.Banded(bands=2, coefficients=(1.0, -0.1))
    with pytest.raises(ValueError, match="none negative"):
        noises.Banded(bands=2, coefficients=(0.0, 1.0))
    with pytest.raises(ValueError, match="must be 2 numbers"):
        noises.BufferedToeplitz(buffers=2, decays=(0.5, 0.9), weights=(0.5, -0.1))


def test_a_tree_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="restart_every=100"):
        participation.once_per_pass(noises.TreeAggregation(), 10_000, 100)
    with pytest.raises(ValueError, match="BufferedToeplitz"):
        participation.every(noises.TreeAggregation(), 2**20, 2**20)
    with pytest.raises(ValueError, match="at most"):
        participation.every(noises.Banded(4, 10), 2**23, 1)


# How good they are -----------------------------------------------------------


def error(noise, steps, momentum=0.0, period=None):
    """Mean squared error of the weights at equal epsilon, by dense matrices."""
    workload = np.tril(np.ones((steps, steps)))
    if momentum:
        lags = np.subtract.outer(np.arange(steps), np.arange(steps))
        workload = workload @ np.tril(momentum ** np.maximum(lags, 0))
    inverse = np.linalg.inv(noise.matrix(steps))
    sensitivity = participation.every(noise, steps, period or steps)
    return sensitivity**2 * np.sum((workload @ inverse) ** 2) / steps


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_error_is_that_of_dense_matrices(momentum):
    noise = noises.Banded(bands=5, steps=40, momentum=momentum)
    found = toeplitz.mean_squared_error(noise.coefficients, 40, momentum)
    assert found == pytest.approx(error(noise, 40, momentum), rel=1e-6)
    found = toeplitz.mean_squared_error(noise.coefficients, 40, momentum, separation=8)
    assert found == pytest.approx(error(noise, 40, momentum, period=8), rel=1e-6)


def test_more_bands_leave_less_error_and_none_is_independent_noise():
    errors = [error(noises.Banded(bands, 64), 64) for bands in (1, 2, 4, 16, 64)]
    assert errors[0] == pytest.approx(np.mean(np.arange(1, 65)))
    assert errors == sorted(errors, reverse=True)
    # All bands: no worse than the square root, and than a few buffers.
    root = toeplitz.mean_squared_error(toeplitz.square_root(64), 64)
    assert errors[-1] <= root
    assert errors[-1] <= error(noises.BufferedToeplitz(3, 64), 64) <= root
    assert errors[-1] < error(noises.TreeAggregation(), 64)


def test_bands_are_a_minimum():
    noise = noises.Banded(bands=6, steps=50)
    least = toeplitz.mean_squared_error(noise.coefficients, 50)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = np.array(noise.coefficients) * np.exp(0.05 * rng.standard_normal(6))
        assert toeplitz.mean_squared_error(other, 50) >= least * (1 - 1e-6)


def test_momentum_and_separation_have_strategies_of_their_own():
    assert error(noises.Banded(8, 64, momentum=0.9), 64, 0.9) < error(
        noises.Banded(8, 64), 64, 0.9
    )
    assert error(noises.BufferedToeplitz(2, 64, separation=8), 64, period=8) < error(
        noises.BufferedToeplitz(2, 64), 64, period=8
    )


def test_two_thousand_steps_take_seconds():
    start = time.process_time()
    noises.Banded(bands=32, steps=2000, momentum=0.9)
    noises.BufferedToeplitz(buffers=4, steps=2000, separation=100)
    assert time.process_time() - start < 60
    start = time.process_time()
    noises.Banded(bands=32, steps=2000, momentum=0.9)  # From the cache.
    assert time.process_time() - start < 0.5
