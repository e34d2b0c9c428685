"""An ellipsoid has the sensitivity of a ball, in units of its axes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease
from keras_dp_ext.bounding import EllipsoidClip

AXES = (2.0, 0.05)


def model_with(bound=None, scale=1.1, **arguments):
    layer = keras.layers.Dense(2, bias_initializer="ones")
    model = keras.Sequential([keras.Input([3]), layer])
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=bound or EllipsoidClip(AXES, 0.7),
        noise=dp.noise.Gaussian(scale),
        **{"learning_rate": 1.0, "expected_batch_size": 1, **arguments},
    )
    model.compile(optimizer, "mse")
    return model


def data(rows=22):
    x = np.random.default_rng(0).normal(size=[rows, 3]).astype("float32")
    return x, x[:, :2].copy()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_update_is_the_sum_of_rows_inside_of_the_ellipsoid(jit_compile):
    x, y = data(8)
    model = model_with(scale=1e-9)
    model.jit_compile = jit_compile
    before, expected = model.get_weights(), [0.0, 0.0]
    lengths = []
    for one in range(8):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[one : one + 1]) - y[one : one + 1]) ** 2)
        row = [g.numpy() for g in tape.gradient(loss, model.trainable_variables)]
        length = np.sqrt(
            sum(np.sum((g / s) ** 2) for g, s in zip(row, AXES, strict=True))
        )
        lengths.append(length)
        factor = min(1.0, 0.7 / length)
        expected = [e + factor * g for e, g in zip(expected, row, strict=True)]
    assert max(lengths) > 0.7
    model.fit(x, y, batch_size=8, verbose=0)
    for old, new, moved in zip(before, model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(old - new, moved, rtol=1e-3, atol=1e-5)


def test_noise_has_the_shape_of_the_ellipsoid():
    x = np.zeros([4, 1000], "float32")
    layer = keras.layers.Dense(1000, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input([1000]), layer])
    model.compile(
        dp.optimizers.make_private(
            keras.optimizers.SGD,
            bound=EllipsoidClip(AXES),
            noise=dp.noise.Gaussian(3.0),
            learning_rate=1.0,
            expected_batch_size=1,
        ),
        "mse",
    )
    model.fit(x, x, batch_size=4, verbose=0)
    kernel, bias = model.get_weights()
    assert np.std(kernel) == pytest.approx(3.0 * AXES[0], rel=0.01)
    assert np.std(bias) == pytest.approx(3.0 * AXES[1], rel=0.15)


def test_an_example_moves_the_sum_by_the_whole_clip_at_most():
    def train(x, y):
        model = model_with(learning_rate=0.1)
        lots = dp.data.poisson_batches(x, y, batch_size=6)
        model.fit(lots, verbose=0)
        assert model.optimizer.privacy_claim().proven == GaussianRelease(1.1 / 0.7)
        return model

    found = dp.audit.audit_fit(train, data(), examples=["opposed", "not a number"])
    assert found.within_claim, str(found)


def test_it_survives_saving(tmp_path):
    model = model_with()
    model.fit(*data(8), batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.bound_stage == EllipsoidClip(AXES, 0.7)


def test_axes_must_be_positive_and_describe_the_model():
    for axes in [(1.0, 0.0), (1.0, np.nan), (1.0, np.inf)]:
        with pytest.raises(ValueError, match="`axes`"):
            EllipsoidClip(axes)
    with pytest.raises(ValueError, match="each of the 2 trainable weights"):
        model_with(EllipsoidClip((1.0,))).fit(*data(8), batch_size=8, verbose=0)
