"""The tanh mechanism against an independent reading of Algorithm 1."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.accounting import events
from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms.tanh import Tanh

SHAPES = [(4, 3), (3,), (2, 2, 5)]


def _rows(seed=0, rows=7, scale=3.0):
    rng = np.random.default_rng(seed)
    return [
        (scale * rng.standard_normal((rows, *shape))).astype("float32")
        for shape in SHAPES
    ]


def _bound(mechanism, rows):
    return [t.numpy() for t in mechanism.bound(MaterializedGradients(rows))]


def _flat(tensors):
    return np.concatenate([np.ravel(t) for t in tensors])


@pytest.mark.parametrize("slope", [1.0, 0.5])
def test_published_is_algorithm_1_to_the_letter(slope):
    rows = _rows()
    mechanism = Tanh(
        output_range=2.5,
        active_range=4.0,
        slope=slope,
        noise_multiplier=1.3,
        guarantee="published",
    )
    total = [np.zeros(shape) for shape in SHAPES]
    for b in range(7):  # Algorithm 1: for microbatch b in the batch.
        for j, shape in enumerate(SHAPES):
            for index in np.ndindex(*shape):
                x = float(rows[j][b][index]) / 4.0
                if slope == 0.5:  # Eq. 4 as printed.
                    y = (1 - math.exp(-x)) / (1 + math.exp(-x))
                else:
                    y = math.tanh(x)
                total[j][index] += 2.5 * y
    for ours, reference in zip(_bound(mechanism, rows), total, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-5)


def test_noise_is_sigma_as_printed_and_sigma_times_clip_if_proven():
    shapes = [(200, 200), (50,)]
    seed = tf.constant([3, 4])
    for guarantee, deviation in (("published", 1.3), ("proven", 1.3 * 0.25)):
        mechanism = Tanh(
            noise_multiplier=1.3,
            l2_norm_clip=0.25,
            output_range=7.0,
            guarantee=guarantee,
        )
        noise = mechanism.draw_noise(shapes, seed, tf.constant(0, tf.int64))
        assert [tuple(n.shape) for n in noise] == shapes
        assert np.std(_flat(noise)) == pytest.approx(deviation, rel=0.02)
        again = mechanism.draw_noise(shapes, seed, tf.constant(0, tf.int64))
        np.testing.assert_array_equal(_flat(noise), _flat(again))


def test_proven_filters_then_clips_the_whole_row():
    rows = _rows()
    mechanism = Tanh(output_range=0.5, active_range=2.0, l2_norm_clip=0.75)
    filtered = [0.5 * np.tanh(row.astype("float64") / 2.0) for row in rows]
    norms = np.sqrt(sum(np.sum(f.reshape(7, -1) ** 2, axis=1) for f in filtered))
    factor = np.minimum(1.0, 0.75 / norms)
    assert np.any(factor < 1)
    for ours, row in zip(_bound(mechanism, rows), filtered, strict=True):
        np.testing.assert_allclose(
            ours, np.tensordot(factor, row, axes=1), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e3, 1e30])
def test_no_row_moves_the_proven_sum_further_than_the_clip(size):
    mechanism = Tanh(output_range=3.0, active_range=0.1, l2_norm_clip=0.7)
    others = _rows(1)
    for seed in range(5):
        extra = _rows(seed, rows=1, scale=size)
        both = [np.concatenate(pair) for pair in zip(others, extra, strict=True)]
        change = _flat(_bound(mechanism, both)) - _flat(_bound(mechanism, others))
        assert np.linalg.norm(change) <= 0.7 * (1 + 1e-4)


def test_entries_that_vanish_when_squared_cannot_pass_the_clip():
    """The attack: c = 1e20 makes entries of 1e-20 count, but their squares are 0."""
    with pytest.raises(ValueError, match="Argument `output_range`"):
        Tanh(output_range=1e20)
    mechanism = Tanh(output_range=1e6, l2_norm_clip=1.0)
    for size in (1e-21, 1e-19, 1e-12, 1e-6):
        row = [np.full((1, *shape), size, "float32") for shape in SHAPES]
        assert np.linalg.norm(_flat(_bound(mechanism, row))) <= 1.0 + 1e-4


def test_a_row_of_nan_or_zeros_contributes_nothing():
    mechanism = Tanh()
    rows = _rows()
    reference = _flat(_bound(mechanism, rows))
    broken = _rows(5, rows=2)
    broken[1][0] = np.nan
    for part in broken:
        part[1] = 0.0
    both = [np.concatenate(pair) for pair in zip(rows, broken, strict=True)]
    np.testing.assert_allclose(_flat(_bound(mechanism, both)), reference, atol=1e-5)


def test_published_row_really_reaches_the_sensitivity_that_is_claimed():
    """The attack: one saturated row has norm c * sqrt(n), not 1."""
    mechanism = Tanh(output_range=2.0, guarantee="published")
    row = [np.full((1, *shape), 50.0, "float32") for shape in SHAPES]
    size = sum(math.prod(shape) for shape in SHAPES)
    norm = np.linalg.norm(_flat(_bound(mechanism, row)))
    assert norm == pytest.approx(2.0 * math.sqrt(size))
    claim = mechanism.claim(size)
    assert claim.proven.noise_multiplier == pytest.approx(1.1 / norm)
    assert claim.published == events.GaussianRelease(1.1)
    assert "no meaningful guarantee" in claim.caveat


def test_proven_claim_is_that_of_dp_sgd_and_halves_for_microbatches():
    claim = Tanh(noise_multiplier=1.1, l2_norm_clip=0.3, output_range=9.0).claim(26_010)
    expected = events.GaussianRelease(1.1)
    assert claim == type(claim)(expected, published_conversion="classic")
    grouped = Tanh(noise_multiplier=1.1).claim(26_010, examples_per_microbatch=4)
    assert grouped.proven == events.GaussianRelease(0.55)


def test_norms_are_logged_only_on_request_and_say_how_far_from_one_they_are():
    mechanism = Tanh(log_norms=True, l2_norm_clip=0.1)
    mechanism.build(
        [],
        lambda shape, dtype, name, initializer, saved: keras.Variable(
            np.zeros(shape), dtype=dtype, name=name
        ),
    )
    rows = _rows(scale=0.2)
    mechanism.bound(MaterializedGradients(rows))
    norms = np.sqrt(sum(np.sum(np.tanh(r).reshape(7, -1) ** 2, axis=1) for r in rows))
    statistics = mechanism.norm_statistics()
    assert statistics["mean"] == pytest.approx(norms.mean(), rel=1e-4)
    assert statistics["fraction_above_one"] == pytest.approx(np.mean(norms > 1))
    assert mechanism.norm_statistics()["mean"] == 0.0
    with pytest.raises(ValueError, match="log_norms=False"):
        Tanh().norm_statistics()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("output_range", 0.0),
        ("active_range", -1.0),
        ("slope", float("nan")),
        ("l2_norm_clip", 0.0),
        ("noise_multiplier", -0.1),
        ("guarantee", "strong"),
    ],
)
def test_arguments_out_of_range_are_named(argument, value):
    with pytest.raises(ValueError, match=f"Argument `{argument}`"):
        Tanh(**{argument: value})


def test_configuration_makes_an_equal_mechanism():
    mechanism = Tanh(output_range=2.0, slope=0.5)
    assert Tanh(**mechanism.get_config()).get_config() == mechanism.get_config()
