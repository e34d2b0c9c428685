"""Clipping layer by layer has the sensitivity of one clip."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease
from keras_dp_ext.bounding import PerLayerClip


def model_with(bound, **arguments):
    model = keras.Sequential(
        [
            keras.Input([3]),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=bound,
        noise=dp.noise.Gaussian(arguments.pop("scale", 1.1)),
        **{"learning_rate": 0.1, **arguments},
    )
    model.compile(optimizer, "mse")
    return model


def data(rows=22):
    x = np.random.default_rng(0).normal(size=[rows, 3]).astype("float32")
    return x, x[:, :1].copy()


@pytest.mark.parametrize("sizes", [None, (2, 2)])
def test_each_layer_is_clipped_by_itself(sizes):
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=[5, *shape]) * 3 for shape in ([3, 4], [4], [4, 1], [1])]
    shares = (1.0, 2.0) if sizes else None
    bound = PerLayerClip(2.0, sizes, shares)
    sums = bound.sum(
        dp.gradients.MaterializedGradients([tf.constant(r, tf.float32) for r in rows])
    )
    layers = [(0, 1), (2, 3)] if sizes else [(0,), (1,), (2,), (3,)]
    clips = 2.0 * np.array(shares or (1.0,) * 4)
    clips /= np.linalg.norm(shares or (1.0,) * 4)
    for layer, clip in zip(layers, clips, strict=True):
        squares = sum(np.sum(rows[n].reshape(5, -1) ** 2, axis=1) for n in layer)
        factors = np.minimum(1.0, clip / np.sqrt(squares))
        for n in layer:
            expected = np.tensordot(factors, rows[n], axes=1)
            np.testing.assert_allclose(sums[n], expected, rtol=1e-4)


def test_in_a_training_it_is_what_it_is_on_rows():
    x, y = data(8)
    model = model_with(
        PerLayerClip(0.5, (2, 2)), scale=1e-9, learning_rate=1.0, expected_batch_size=1
    )
    before = model.get_weights()
    rows = []
    for one in range(8):
        with tf.GradientTape() as tape:
            error = model(x[one : one + 1]) - y[one : one + 1]
            loss = tf.reduce_sum(error**2)
        rows.append([g.numpy() for g in tape.gradient(loss, model.trainable_variables)])
    columns = [tf.constant(np.stack(column)) for column in zip(*rows, strict=True)]
    expected = PerLayerClip(0.5, (2, 2)).sum(
        dp.gradients.MaterializedGradients(columns)
    )
    model.fit(x, y, batch_size=8, verbose=0)
    for old, new, moved in zip(before, model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(old - new, moved, rtol=1e-3, atol=1e-5)


def test_an_example_moves_the_sum_by_the_whole_clip_at_most():
    def train(x, y):
        model = model_with(PerLayerClip(0.7))
        lots = dp.data.poisson_batches(x, y, batch_size=6)
        accountant = dp.callbacks.PrivacyAccountant(delta=1e-2)
        model.fit(lots, verbose=0, callbacks=[accountant])
        assert model.optimizer.privacy_claim().proven == GaussianRelease(1.1 / 0.7)
        return model

    found = dp.audit.audit_fit(train, data(), examples=["opposed", "not a number"])
    assert found.within_claim, str(found)
    assert 0.7 < found.shift <= 1.001


def test_norms_that_are_wrong_for_two_layers_and_right_in_total_are_caught(monkeypatch):
    """Half of what the first layer has is told of the second one."""
    from keras_dp_ext.gradients.contributions import OuterProducts

    norm, moved = OuterProducts.norm_squared, []

    def sabotaged(self, scale=None):
        value = norm(self, scale)
        if moved:
            return value + moved.pop()
        moved.append(0.5 * value)
        return 0.5 * value

    layers = [keras.layers.Dense(n, use_bias=False) for n in (4, 1)]
    model = keras.Sequential([keras.Input([3]), *layers])
    model.compile(
        dp.optimizers.make_private(
            keras.optimizers.SGD, bound=PerLayerClip(0.7), noise=dp.noise.Gaussian(1.1)
        ),
        "mse",
    )
    x, y = data()
    model.build([None, 3])
    before = model.get_weights()
    with monkeypatch.context() as patched:
        patched.setattr(OuterProducts, "norm_squared", sabotaged)
        with pytest.raises(ValueError, match="norms are wrong"):
            model.fit(x, y, batch_size=11, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_it_saves_loads_and_refuses_other_models(tmp_path):
    x, y = data()
    model = model_with(PerLayerClip(0.7, (2, 2), (1.0, 3.0)))
    model.fit(x, y, batch_size=11, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.mechanism.bound_stage == PerLayerClip(
        0.7, (2, 2), (1.0, 3.0)
    )
    with pytest.raises(ValueError, match="must describe the model"):
        model_with(PerLayerClip(0.7, (2, 1))).fit(x, y, batch_size=11, verbose=0)
    with pytest.raises(ValueError, match="No bound on epsilon"):
        dp.optimizers.make_private(
            keras.optimizers.SGD, bound=PerLayerClip(), noise=dp.noise.StudentT()
        )
