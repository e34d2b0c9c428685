"""Whatever numbers an example holds, it moves the weights no further than allowed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import data, dense_model, flat, silent, update

import keras_dp_ext as dp

# (input, target) of one example: what training data should never contain.
POISON = {
    "nan": (np.nan, 1.0),
    "inf": (np.inf, 1.0),
    "nan target": (1.0, np.nan),
    "inf target": (1.0, -np.inf),
    "1e30": (1e30, 1e30),
    "overflow": (3e38, -3e38),
    "denormal": (1e-40, 1e-40),
    "denormal times huge": (1e-40, 1e38),
}
MECHANISMS = ("DPSGD", "TanhSGD", "EncodedSGD")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_poisoned_example_stays_within_the_bound_and_harms_nobody(mechanism):
    x, y = data(8)
    model = dense_model()
    model.compile(silent(mechanism), loss="mse", jit_compile=False)
    weights = model.get_weights()
    healthy = update(model, x[1:], y[1:])
    for name, (value, target) in POISON.items():
        bad_x, bad_y = x.copy(), y.copy()
        bad_x[0], bad_y[0] = value, target
        model.set_weights(weights)
        moved = update(model, bad_x, bad_y)
        assert np.isfinite(moved).all(), name
        # Both bounds have norm 1: the sums differ by one bounded row at most.
        assert np.linalg.norm(moved - healthy) <= 1.0 + 1e-5, name


def test_an_example_with_nan_contributes_exactly_nothing():
    x, y = data(8)
    model = dense_model()
    model.compile(silent(), loss="mse", jit_compile=True)
    weights = model.get_weights()
    bad = x.copy()
    bad[3, 1] = np.nan
    moved = update(model, bad, y)
    model.set_weights(weights)
    masked = update(model, x, y, sample_weight=(np.arange(8) != 3).astype("float32"))
    np.testing.assert_allclose(moved, masked, atol=1e-6)


@pytest.mark.parametrize("positions, jit_compile", [(1, True), (3, False)])
def test_underflow_of_one_factor_does_not_hide_a_large_gradient(positions, jit_compile):
    # The attack: |a|^2 underflows to 0 while |d|^2 is near the float32 limit, so
    # that |a|^2 |d|^2 is 0 and a gradient of norm 57 passes as if it were zero.
    model = keras.Sequential(
        [
            keras.Input([positions, 1000]),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    model.compile(silent(), loss="mse", jit_compile=jit_compile)
    weights = model.get_weights()
    for value, target in [(1e-19, 9e18), (1e-30, 1e30), (1e30, 1e-30), (1e-38, 1e38)]:
        x = np.zeros((4, positions, 1000), "float32")
        x[0] = value
        y = np.array([[target], [0], [0], [0]], "float32")
        model.set_weights(weights)
        assert np.linalg.norm(update(model, x, y)) <= 1.0 + 1e-5, (value, target)


@pytest.mark.parametrize("active_range", [1e-2, 1e-20])
def test_a_huge_gradient_beside_inputs_of_zero_is_a_number(active_range):
    """TensorFlow makes `0 * (factor * huge)` of `factor * (0 * huge)`: not a number."""
    model = keras.Sequential([keras.Input([80]), keras.layers.Dense(60)])
    model.compile(silent("TanhSGD", active_range=active_range), loss="mse")
    x, y = np.eye(4, 80, dtype="float32"), np.zeros((4, 60), "float32")
    weights = model.get_weights()
    healthy = update(model, x[1:], y[1:])
    for target in (1e30, 5e37, 3e38):
        y[0, 1] = target
        model.set_weights(weights)
        moved = update(model, x, y)
        assert np.linalg.norm(moved - healthy) <= 1.0 + 1e-5, target


TINY = {
    "DPSGD": lambda tiny: dp.optimizers.DPSGD(l2_norm_clip=tiny),
    "L2Clip": lambda tiny: dp.bounding.L2Clip(tiny),
    "PerLayerClip": lambda tiny: dp.bounding.PerLayerClip(tiny),
    "QuantileClip": lambda tiny: dp.bounding.QuantileClip(tiny),
    "EllipsoidClip": lambda tiny: dp.bounding.EllipsoidClip((1.0,), tiny),
    "Normalized": lambda tiny: dp.bounding.Normalized(stability=tiny),
}


@pytest.mark.parametrize("name", TINY)
def test_clips_below_what_float32_can_measure_are_refused(name):
    """The attack: squares of 1e-20 are 0, so that rows of 7e-19 pass a clip of 1e-25."""
    with pytest.raises(ValueError, match="must be at least 1e-12"):
        TINY[name](1e-25)
    TINY[name](1e-12)


@pytest.mark.parametrize("size", [1e-20, 1e-17, 1e-14, 1e-10])
def test_the_least_clip_holds_for_gradients_around_it(size):
    model = keras.Sequential([keras.Input([80]), keras.layers.Dense(60)])
    model.compile(
        silent(l2_norm_clip=1e-12), loss=lambda y, p: tf.reduce_sum(y * p, axis=-1)
    )
    model.set_weights([0.0 * weight for weight in model.get_weights()])
    x, y = np.zeros((4, 80), "float32"), np.zeros((4, 60), "float32")
    x[1], y[1] = 1.0, size
    assert 0 < np.linalg.norm(update(model, x, y)) <= 1e-12 * (1 + 1e-5)


def automatic():
    return dp.optimizers.AutomaticSGD(
        learning_rate=1.0, noise_multiplier=1e-9, expected_batch_size=1
    )


def quantile_clip():
    return dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=dp.bounding.QuantileClip(1e-3),
        noise=dp.noise.Gaussian(1e-9),
        learning_rate=1.0,
        expected_batch_size=1,
    )


@pytest.mark.parametrize("make", [automatic, quantile_clip])
def test_denormal_inputs_beside_huge_gradients_spoil_no_sum(make):
    """Coefficients above 1 made the huge factor infinite, and `inf * 0` of the sum."""
    model = keras.Sequential(
        [keras.Input([2, 80]), keras.layers.Dense(60, use_bias=False)]
    )
    model.compile(make(), loss=lambda y, p: tf.reduce_sum(y * p, axis=(1, 2)))
    x, y = np.full((4, 2, 80), 0.1, "float32"), np.full((4, 2, 60), 0.1, "float32")
    weights = model.get_weights()
    healthy = update(model, x[1:], y[1:])
    x[0] = 0.0
    for value, gradient in ((1e-39, 1e38), (1e-39, 5e37), (2e-38, 1e37)):
        x[0, :, 0], y[0], y[0, :, 0] = value, 0.0, gradient
        model.set_weights(weights)
        moved = update(model, x, y)
        assert np.linalg.norm(moved - healthy) <= 1.0 + 1e-5, value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_gradients_of_zero_give_an_update_of_zero(mechanism):
    model = dense_model()
    model.compile(silent(mechanism), loss="mse")
    x = np.zeros((8, 4), "float32")
    moved = update(model, x, model.predict(x, verbose=0))
    np.testing.assert_allclose(moved, 0.0, atol=1e-9)


def test_a_batch_of_one_equals_its_clipped_gradient():
    x, y = data(1)
    model = dense_model()
    model.compile(silent(l2_norm_clip=0.5), loss="mse")
    assert np.linalg.norm(update(model, x, 100 + y)) == pytest.approx(0.5, rel=1e-5)


def test_sample_weights_of_zero_remove_and_negative_ones_reverse():
    x, y = data(8)
    model = dense_model()
    model.compile(silent(l2_norm_clip=1e-2), loss="mse")
    weights = model.get_weights()
    plain = update(model, x, y)
    model.set_weights(weights)
    reversed_ = update(model, x, y, sample_weight=-np.ones(8, "float32"))
    np.testing.assert_allclose(reversed_, -plain, atol=1e-6)
    model.set_weights(weights)
    nothing = update(model, x, y, sample_weight=np.zeros(8, "float32"))
    np.testing.assert_array_equal(nothing, 0.0)


def test_labels_out_of_range_are_refused_or_contribute_nothing():
    x, _ = data(8)
    labels = np.array([0, 1, 1, 0, 7, 1, 0, 1])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = dense_model(outputs=2)
    model.compile(silent(), loss=loss, jit_compile=True)
    weights = model.get_weights()
    moved = update(model, x, labels)
    model.set_weights(weights)
    others = np.arange(8) != 4
    expected = update(model, x, labels * others, sample_weight=others.astype("float32"))
    np.testing.assert_allclose(moved, expected, atol=1e-6)

    model = dense_model(outputs=2)
    model.compile(silent(), loss=loss, jit_compile=False)
    before = flat(model)
    with pytest.raises(Exception, match="label value"):
        model.train_on_batch(x, labels)
    np.testing.assert_array_equal(flat(model), before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("num_microbatches", [None, 4])
def test_a_poisoned_example_harms_nobody_where_no_rule_and_no_cut_applies(
    bad, num_microbatches
):
    # The batch has a fixed number of rows: the graph cannot be run for one example.
    # Differentiated through the batch, 0 * NaN erased all rows.
    class FixedRows(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(4,), initializer="ones")

        def call(self, x):
            rows = tf.ensure_shape(x, [8, 4]) / self.scale
            return tf.reduce_sum(rows, axis=1, keepdims=True)

    x, y = data(8)
    model = keras.Sequential([keras.Input([4]), FixedRows()])
    group = 8 // (num_microbatches or 8)
    model.compile(
        silent(num_microbatches=num_microbatches, expected_batch_size=group),
        loss="mse",
    )
    weights = model.get_weights()
    rows, targets = x.reshape(-1, group, 4), y.reshape(-1, group)
    # d/ds_i of (sum_i x_i / s_i - y)^2 at s = 1, averaged over a microbatch.
    gradients = -np.mean(2 * (rows.sum(axis=2) - targets)[..., None] * rows, axis=1)
    clipped = gradients / np.maximum(1, np.linalg.norm(gradients, axis=1))[:, None]
    with pytest.warns(UserWarning, match="batch of its own copies"):
        moved = update(model, x, y)
    np.testing.assert_allclose(moved, -clipped.sum(axis=0), atol=1e-5)
    model.set_weights(weights)
    poisoned = x.copy()
    poisoned[0] = bad
    others = -clipped[1:].sum(axis=0)
    assert np.linalg.norm(update(model, poisoned, y) - others) <= 1.0 + 1e-5


def test_a_layer_whose_examples_cannot_be_told_apart_is_named(monkeypatch):
    from keras_dp_ext.gradients import fallback

    def refuse(*_):
        raise ValueError("shapes")

    monkeypatch.setattr(fallback, "_one_microbatch_at_a_time", refuse)
    monkeypatch.setattr(fallback, "_in_a_batch_of_copies", refuse)
    model = keras.Sequential([keras.Input([3, 4]), keras.layers.Dense(2)])
    model.add(keras.layers.Lambda(lambda h: h / model.layers[0].bias))
    model.compile(silent(), loss="mse", jit_compile=False)
    with pytest.raises(ValueError, match=r"apart from the others for.*dense"):
        update(model, np.ones((8, 3, 4), "float32"), np.ones((8, 3, 2), "float32"))
