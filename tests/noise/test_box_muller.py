"""Pairs of normals: independent, normal far into the tails, the same by both ways."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.mechanisms import model_noise
from keras_dp_ext.noise import box_muller, philox

PAIRS = 1_000_003  # No multiple of anything that threads or vectors like.


@pytest.fixture(scope="module")
def points():
    flat = box_muller.normals(PAIRS, tf.constant([41, 43]))[: 2 * PAIRS]
    return np.reshape(flat, [PAIRS, 2]).astype(np.float64)


def test_the_compiled_loop_draws_what_single_operations_draw(points):
    """In float64, from the words of TensorFlow's kernel."""
    high, low, turn, _ = (
        np.asarray(word, np.float64)
        for word in philox.blocks_by_kernel(PAIRS, tf.constant([41, 43]))
    )
    radius = np.sqrt(-2 * np.log((high + (low + 0.5) / 2**32) / 2**32))
    angle = 2 * np.pi * turn / 2**32
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    # A radius below 0.05 inherits the 24 bits that float32 has for numbers near 1.
    error = np.abs(points - expected).max(axis=1)
    assert error[radius > 0.05].max() < 5e-6
    assert error.max() < 4e-4
    monkeypatched = pytest.MonkeyPatch()
    with monkeypatched.context() as patch:
        patch.setattr(box_muller, "_LEAST_PAIRS", 2**40)
        single = box_muller.normals(PAIRS, tf.constant([41, 43])).numpy()
    np.testing.assert_allclose(single.reshape(PAIRS, 2), points, atol=4e-4)
    assert np.abs(single.reshape(PAIRS, 2) - points)[radius > 0.05].max() < 5e-6


def test_every_coordinate_and_every_direction_is_normal(points):
    first, second = points.T
    for sample in (
        first,
        second,
        (first + second) / np.sqrt(2),
        0.6 * first - 0.8 * second,
    ):
        assert stats.kstest(sample, stats.norm.cdf).pvalue > 1e-3
        for quantile in (2.0, 3.0, 4.0, 4.5):
            for count in (np.sum(sample > quantile), np.sum(sample < -quantile)):
                tail = stats.norm.sf(quantile)
                assert stats.binomtest(int(count), PAIRS, tail).pvalue > 1e-4


def test_radius_and_angle_of_a_point_are_independent(points):
    squared = np.sum(np.square(points), axis=1)
    assert stats.kstest(squared, stats.chi2(2).cdf).pvalue > 1e-3
    angle = np.arctan2(points[:, 1], points[:, 0])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    rows = np.digitize(squared, stats.chi2(2).ppf(np.linspace(0, 1, 17)[1:-1]))
    columns = np.digitize(angle, np.linspace(-np.pi, np.pi, 17)[1:-1])
    table = np.zeros([16, 16])
    np.add.at(table, (rows, columns), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("distance", [1, 2, 3, 512, 1024, 2**17])
def test_coordinates_are_independent_at_any_distance(points, distance):
    flat = points.ravel()
    limit = 5 / np.sqrt(flat.size)
    for change in (np.asarray, np.abs, np.square):
        values = change(flat)
        correlation = np.corrcoef(values[:-distance], values[distance:])[0, 1]
        assert abs(correlation) < limit


def test_extreme_words_give_no_nan_and_the_last_radius_is_beyond_nine():
    extreme = tf.constant([0, 1, 2**29, 2**30, 2**31, 3 * 2**30, 2**32 - 1], tf.uint32)
    high, low, turn = (tf.reshape(x, [-1]) for x in tf.meshgrid(*[extreme] * 3))
    radius = box_muller._radius(high, low).numpy()
    assert np.isfinite(radius).all() and radius.min() == 0 and radius.max() > 9.49
    cosine, sine = tf.function(box_muller._cosine_and_sine, jit_compile=True)(turn)
    angle = 2 * np.pi * turn.numpy().astype(np.float64) / 2**32
    np.testing.assert_allclose(cosine, np.cos(angle), atol=1.5e-7)
    np.testing.assert_allclose(sine, np.sin(angle), atol=1.5e-7)


def test_cosine_and_sine_are_right_for_every_angle():
    turn = tf.range(0, 2**32, 4093, tf.int64)
    angle = 2 * np.pi * turn.numpy() / 2**32
    cosine, sine = box_muller._cosine_and_sine(tf.cast(turn, tf.uint32))
    np.testing.assert_allclose(cosine, np.cos(angle), atol=1.5e-7)
    np.testing.assert_allclose(sine, np.sin(angle), atol=1.5e-7)


@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole", "pieces"])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_an_attacker_who_sees_all_updates_of_fit_finds_nothing_but_noise(
    jit_compile, in_pieces, monkeypatch
):
    """Normal, independent between variables and steps, and never the same twice."""
    if in_pieces:
        monkeypatch.setattr(box_muller, "_MOST_ROWS", 16)
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input([300]), keras.layers.Dense(301), keras.layers.Dense(300)]
    )
    # All of an update is noise: no gradient is longer than 1e-6.
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=1e-6, noise_multiplier=1e6),
        loss="mse",
        jit_compile=jit_compile,
    )
    x, y = np.ones([8, 300], np.float32), np.ones([8, 300], np.float32)
    seen = []

    class Attacker(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append([v.numpy().astype(np.float64) for v in self.model.weights])

    model.fit(x, y, batch_size=8, epochs=4, verbose=0, callbacks=[Attacker()])
    updates = [
        np.concatenate([(b - a).ravel() for a, b in zip(old, new, strict=True)]) * 8
        for old, new in itertools.pairwise(seen)
    ]
    size = updates[0].size
    assert size // 2 > box_muller._LEAST_PAIRS
    half = 300 * 301 + 301  # The first layer, and the second.
    parts = [part for update in updates for part in (update[:half], update[half:])]
    for part in parts:
        assert stats.kstest(part, stats.norm.cdf).pvalue > 1e-4
    for number, part in enumerate(parts):
        for other in parts[:number]:
            length = min(part.size, other.size)
            # Shifted, too: a counter that goes on from another start.
            for shift in (0, 1, 2, 300, 512):
                a, b = part[: length - shift], other[shift:length]
                assert abs(np.corrcoef(a, b)[0, 1]) < 5.5 / np.sqrt(length)
    # Rounding of the weights leaves some coincidences; a repeated stream would be all.
    for number, update in enumerate(updates):
        for other in updates[:number]:
            assert np.mean(np.isclose(update, other, rtol=0, atol=1e-5)) < 1e-3


@pytest.mark.parametrize("count", [2**17, 2**17 + 1, 150_001, 16 * 1024 + 1])
def test_a_draw_in_pieces_is_the_same_draw(count, monkeypatch):
    """Each goes on where the one before ends: no word is used twice, none left out."""
    seed = tf.constant([41, -43])
    with monkeypatch.context() as patch:
        patch.setattr(box_muller, "_LEAST_PAIRS", 1)
        whole = box_muller.normals((count + 1) // 2, seed)[:count].numpy()
    monkeypatch.setattr(box_muller, "_MOST_ROWS", 16)
    pieces = box_muller.normals_in_pieces(count, seed)
    assert len(pieces) == -(-count // (16 * 1024))
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    _, repeats = np.unique(np.concatenate(pieces), return_counts=True)
    assert repeats.max() < 5  # Float32 has few numbers, a repeated piece thousands.


def test_variables_are_cut_from_pieces_that_end_anywhere(monkeypatch):
    shapes = [(3, 5), (0, 4), (300, 301), (7,), (1,), (100, 300), (), (64, 64)]
    noise, seed = dp.noise.Gaussian(0.5), tf.constant([1, 2])
    whole = model_noise.draw(noise, shapes, seed, 3.0)
    monkeypatch.setattr(box_muller, "_MOST_ROWS", 16)
    assert len(noise.sample_pieces(2**17, seed)) > 1
    pieces = tf.function(lambda: model_noise.draw(noise, shapes, seed, 3.0))()
    for one, other, shape in zip(whole, pieces, shapes, strict=True):
        assert one.shape == other.shape == shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_a_subclass_that_draws_by_itself_is_asked_for_large_draws_too(monkeypatch):
    """The accountant reads its density: nothing else may be drawn in its place."""

    class Constant(dp.noise.Gaussian):
        def _standard_sample(self, shape, seed):
            return tf.ones(shape)

    class Wider(dp.noise.Gaussian):
        def sample(self, shape, seed):
            return 2.0 * super().sample(shape, seed)

    monkeypatch.setattr(box_muller, "_MOST_ROWS", 16)
    seed, shapes = tf.constant([1, 2]), [(2**16,), (2**16 - 5, 1)]
    for drawn in model_noise.draw(Constant(3.0), shapes, seed):
        assert set(np.ravel(drawn)) == {3.0}
    plain = model_noise.draw(dp.noise.Gaussian(), shapes, seed)
    for one, wide in zip(plain, model_noise.draw(Wider(), shapes, seed), strict=True):
        np.testing.assert_allclose(wide, 2.0 * one, rtol=1e-5, atol=1e-6)


def test_a_draw_in_pieces_whose_counter_would_start_again_is_refused():
    with pytest.raises(ValueError, match="fewer than"):
        box_muller.normals_in_pieces(2**32, tf.constant([1, 2]))


def test_two_draws_of_the_same_size_share_the_compiled_loop():
    first = dp.noise.Gaussian().sample([2**17], tf.constant([1, 2]))
    traces = box_muller._compiled().experimental_get_tracing_count()
    second = dp.noise.Gaussian(3.0).sample([2, 2**16], tf.constant([1, 3]))
    assert box_muller._compiled().experimental_get_tracing_count() == traces
    assert not np.any(np.ravel(first) == np.ravel(second) / 3)


def test_without_xla_in_tensorflow_single_operations_draw(monkeypatch):
    box_muller._can_compile.cache_clear()

    def refuse(*args, **kwargs):
        raise ValueError("XLA is not built in")

    expected = dp.noise.Gaussian().sample([2**17], tf.constant([1, 2])).numpy()
    box_muller._can_compile.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(tf, "function", refuse)
        drawn = dp.noise.Gaussian().sample([2**17], tf.constant([1, 2])).numpy()
    box_muller._can_compile.cache_clear()
    np.testing.assert_allclose(drawn, expected, atol=4e-4)
