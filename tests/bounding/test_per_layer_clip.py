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


def test_groups_are_clipped_together_wherever_their_weights_are():
    rng = np.random.default_rng(2)
    rows = [rng.normal(size=[5, *shape]) * 3 for shape in ([3, 4], [4], [4, 1], [1])]
    tensors = [tf.constant(r, tf.float32) for r in rows]
    bound = PerLayerClip(2.0, shares=(3.0, 1.0), groups=(0, 1, 0, 1))
    sums = bound.sum(dp.gradients.MaterializedGradients(tensors))
    clips = 2.0 * np.array([3.0, 1.0]) / np.sqrt(10)
    for group, clip in ((0, 2), clips[0]), ((1, 3), clips[1]):
        squares = sum(np.sum(rows[n].reshape(5, -1) ** 2, axis=1) for n in group)
        factors = np.minimum(1.0, clip / np.sqrt(squares))
        for n in group:
            expected = np.tensordot(factors, rows[n], axes=1)
            np.testing.assert_allclose(sums[n], expected, rtol=1e-4)
    # Neighbouring groups are layers.
    layers = PerLayerClip(2.0, (2, 2)).sum(dp.gradients.MaterializedGradients(tensors))
    same = PerLayerClip(2.0, groups=(0, 0, 1, 1)).sum(
        dp.gradients.MaterializedGradients(tensors)
    )
    for one, other in zip(layers, same, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "arguments",
    [
        {"groups": (0, 2, 0, 2)},
        {"groups": (-1, 0, 1, 2)},
        {"groups": (0, 1), "layer_sizes": (1, 1)},
    ],
)
def test_groups_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ValueError, match="groups"):
        PerLayerClip(1.0, **arguments)


def test_groups_of_another_model_are_refused():
    model = model_with(PerLayerClip(1.0, groups=(0, 1, 0)))
    with pytest.raises(ValueError, match="must describe the model, which has 4"):
        model.fit(*data(), verbose=0)


def reference(model, x, y, clip_rows):
    """The sum of clipped rows of a lot, by one backward pass for each example."""
    rows = []
    for one in range(len(x)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x[one : one + 1]) - y[one : one + 1]) ** 2)
        rows.append([g.numpy() for g in tape.gradient(loss, model.trainable_variables)])
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return clip_rows(columns)


def by_groups(groups, clip):
    def clipped(columns):
        count = len(set(groups))
        result = []
        for group, column in zip(groups, columns, strict=True):
            squares = sum(
                np.sum(c.reshape(len(c), -1) ** 2, axis=1)
                for c, g in zip(columns, groups, strict=True)
                if g == group
            )
            factors = np.minimum(1.0, clip / np.sqrt(count) / np.sqrt(squares))
            result.append(np.tensordot(factors, column, axes=1))
        return result

    return clipped


BOUNDS = {
    "per-layer": (PerLayerClip(0.5, (2, 2)), by_groups((0, 0, 1, 1), 0.5)),
    "per-group": (PerLayerClip(0.5, groups=(0, 1, 0, 1)), by_groups((0, 1, 0, 1), 0.5)),
    "quantile": (dp.bounding.QuantileClip(0.5), by_groups((0, 0, 0, 0), 0.5)),
}


def check_one_update(model, clip_rows, x, y, lot, **arguments):
    """The first `lot` rows, in one update without noise to speak of."""
    before = model.get_weights()
    expected = reference(model, x[:lot], y[:lot], clip_rows)
    model.fit(x, y, shuffle=False, verbose=0, **arguments)
    for old, new, value in zip(before, model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(old - new, value / 8, rtol=2e-3, atol=2e-5)


QUIET = {"scale": 1e-7, "learning_rate": 1.0, "expected_batch_size": 8}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("path", ["xla", "lots", "dynamic", "reloaded"])
def test_an_update_is_the_clipped_sum_on_every_path(name, path, tmp_path):
    bound, clip_rows = BOUNDS[name]
    arguments, fitted = dict(QUIET), {"batch_size": 8}
    x, y = data(8)
    if path == "lots":
        arguments["gradient_accumulation_steps"] = 2
        fitted["batch_size"] = 4
    if path == "dynamic":  # Eleven rows have a last batch of three.
        (x, y), fitted["steps_per_epoch"] = data(11), 1
    model = model_with(bound, **arguments)
    model.jit_compile = path == "xla"
    if path == "reloaded":
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
    check_one_update(model, clip_rows, x, y, 8, **fitted)


@pytest.mark.parametrize("name", BOUNDS)
def test_an_update_of_two_replicas_is_the_clipped_sum(name, mirrored):
    bound, clip_rows = BOUNDS[name]
    with mirrored.scope():
        model = model_with(bound, **QUIET)
    check_one_update(model, clip_rows, *data(8), 8, batch_size=8)
