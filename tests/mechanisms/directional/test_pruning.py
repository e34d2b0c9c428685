"""Pruning: what is not measured is not released, and errors come back noised."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients import per_example_gradients

SHAPES = [(40, 5), (5,)]


def _flat(tensors):
    return np.concatenate([np.ravel(t) for t in tensors])


def _rows(rng, rows=32):
    return [rng.standard_normal((rows, *s)).astype("float32") for s in SHAPES]


def test_unmeasured_coordinates_are_neither_clipped_nor_noised_nor_released(harness):
    rng = np.random.default_rng(0)
    h = harness(SHAPES, pruning_ratio=0.9, direction="uniform")
    for step in range(3):
        h.release(_rows(rng), [step, 0])
    measured = _flat(h.noise([1, 2])) != 0
    assert 0.05 < measured.mean() < 0.2
    bounded = _flat(h.bound(_rows(rng)))
    assert np.all(bounded[~measured] == 0)
    # However long a row is on unmeasured coordinates, the others are not clipped.
    small = [np.full((1, *s), 1e-3, "float32") for s in SHAPES]
    hidden = [np.where(m, r, 1e3) for m, r in zip(_split(measured), small, strict=True)]
    np.testing.assert_allclose(_flat(h.bound(hidden)), _flat(h.bound(small)), rtol=1e-5)
    assert _flat(h.bound(hidden))[measured] == pytest.approx(1e-3, rel=1e-4)


def _split(flat):
    return [flat[:200].reshape(1, 40, 5), flat[200:].reshape(1, 5)]


def test_a_huge_unmeasured_entry_does_not_hide_the_others_from_the_clip():
    """The attack: the engine scales a row by its largest entry, then squares it."""
    model = keras.Sequential([keras.Input([40]), keras.layers.Dense(1, use_bias=False)])
    optimizer = dp.optimizers.DirectionalSGD(
        learning_rate=1.0,
        pruning_ratio=0.5,
        direction="uniform",
        noise_multiplier=0.0,
        expected_batch_size=1,
    )
    optimizer.build(model.trainable_variables)
    scale = np.where(np.arange(40) % 8 == 4, 1e-4, 1e4)[:, None]
    state = {variable.path.split("/")[-1]: variable for variable in optimizer.variables}
    state["scale"].assign(scale[:, 0])
    (measured,) = optimizer.mechanism._machine._pruning.measured()
    measured = measured.numpy()[:, 0]
    assert measured[4]  # One of the narrow axes.
    row = np.full(40, 0.5)  # Along a narrow axis: 5000 times the clip.
    row[np.argmin(measured)] = 1.5e19  # Its square is the largest that is finite.
    row[0] = 1e5
    assert measured[0]

    @tf.function
    def bounded(x):
        losses = tf.reduce_sum(model(x), axis=1)
        gradients = per_example_gradients(losses, model.trainable_variables)
        return optimizer.mechanism.bound(gradients)

    (total,) = bounded(tf.constant(row[None], tf.float32))
    assert np.linalg.norm(total.numpy() / scale) <= 1.0 + 1e-4


def test_every_coordinate_is_measured_within_a_period(harness):
    rng = np.random.default_rng(1)
    h = harness(SHAPES, pruning_ratio=0.9)
    seen = np.zeros(205, bool)
    for step in range(20):  # 2 / (1 - 0.9)
        seen |= _flat(h.noise([5, 6])) != 0
        h.release(_rows(rng), [step, 0])
    assert seen.all()


def test_errors_are_fed_back_and_nothing_is_lost(harness):
    """What has been released equals what has been applied plus the memory."""
    rng = np.random.default_rng(2)
    h = harness(SHAPES, pruning_ratio=0.8, direction="uniform")
    released, applied = np.zeros(205), np.zeros(205)
    for step in range(15):
        rows = _rows(rng)
        released += _flat(h.bound(rows)) + _flat(h.noise([step, 3]))
        update = _flat(h.release(rows, [step, 3]))
        assert np.mean(update != 0) <= 0.25
        applied += update
    memory = _flat([h.state[f"pruning_memory_{i}"].numpy() for i in range(2)])
    np.testing.assert_allclose(applied + memory, released, atol=1e-4)
    assert np.any(memory != 0)


def test_mask_and_memory_depend_on_released_values_only(harness):
    first, second = (harness(SHAPES, pruning_ratio=0.7) for _ in range(2))
    rng = np.random.default_rng(3)
    for _ in range(4):
        first.bound(_rows(rng))
        second.bound(_rows(rng, rows=2))
        released = [rng.standard_normal(s).astype("float32") for s in SHAPES]
        for h in (first, second):
            h.mechanism.refine(released, 0)
    for name, variable in first.state.items():
        np.testing.assert_array_equal(variable.numpy(), second.state[name].numpy())


def test_update_is_as_sparse_as_asked_for_large_models(harness):
    """Above the size at which thresholds come from a sample of the values."""
    rng = np.random.default_rng(4)
    h = harness([(300, 700)], pruning_ratio=0.95, direction="uniform")
    rows = [rng.standard_normal((2, 300, 700)).astype("float32")]
    for step in range(12):
        (update,) = h.release(rows, [step, 0])
    assert np.mean(update != 0) == pytest.approx(0.05, abs=0.01)


def test_noise_is_drawn_for_measured_coordinates_only(harness, monkeypatch):
    drawn, sample = [], dp.noise.Gaussian.sample

    def recorded(self, shape, *arguments):
        drawn.append(int(np.prod(shape)))
        return sample(self, shape, *arguments)

    monkeypatch.setattr(dp.noise.Gaussian, "sample", recorded)
    rng = np.random.default_rng(5)
    h = harness([(400, 5), (5,)], pruning_ratio=0.9, direction="uniform")
    for step in range(3):
        rows = [rng.standard_normal((4, *s)).astype("float32") for s in h.shapes]
        h.release(rows, [step, 0])
    measured = np.count_nonzero(_flat(h.noise([1, 2])))
    # Of 2005, a 20th in turn (101) and a 20th with a tenth of slack (111).
    assert set(drawn) == {212}
    assert 150 < measured <= 212


def test_measured_coordinates_have_independent_normals_of_their_own(harness):
    rng = np.random.default_rng(6)
    h = harness(SHAPES, pruning_ratio=0.7, direction="uniform")
    for step in range(2):
        h.release(_rows(rng), [step, 0])
    noise = h.noises(4000)
    scale = 1.1 * _flat(h.scales())
    measured = np.any(noise != 0, axis=0)
    assert np.all(noise[:, measured] != 0)
    standard = noise[:, measured] / scale[measured]
    assert np.abs(standard.mean(axis=0)).max() < 5 / np.sqrt(4000)
    assert np.abs(standard.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 4000)
    correlation = np.corrcoef(standard.T) - np.eye(measured.sum())
    assert np.abs(correlation).max() < 6 / np.sqrt(4000)


def test_no_two_coordinates_share_a_draw_however_many_are_large(harness):
    # A state that holds more large coordinates than any release leaves behind.
    h = harness(SHAPES, pruning_ratio=0.9, direction="uniform")
    for index, shape in enumerate(SHAPES):
        h.state[f"pruning_large_{index}"].assign(np.ones(shape))
    noise = _flat(h.noise([3, 4]))
    released = noise[noise != 0]
    assert len(np.unique(released)) == len(released) <= 22
    bounded = _flat(h.bound(_rows(np.random.default_rng(7))))
    assert np.all(bounded[noise == 0] == 0)
