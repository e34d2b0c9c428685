"""Features of the scattering presets: one image at a time, nothing learned."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.data import DataSet, Scattering, load
from keras_dp_ext.presets import (
    FEATURES,
    MODELS,
    build_model,
    find_recipe,
    with_features,
)
from keras_dp_ext.presets import features as module
from keras_dp_ext.presets.dead_leaves import dead_leaves
from keras_dp_ext.presets.random_scattering import RandomScattering


@pytest.fixture(scope="module")
def images():
    digits = load("digits")
    return dataclasses.replace(
        digits, x_train=digits.x_train[:150], y_train=digits.y_train[:150]
    )


@pytest.fixture(scope="module")
def features(images):
    return with_features("scatter_linear", images)


def test_features_belong_to_models_that_exist():
    assert set(FEATURES) <= set(MODELS)


def test_other_models_get_the_data_as_it_is(images):
    assert with_features("tanh_cnn", images) is images


def test_features_are_normalised_scattering_coefficients(images, features):
    raw = np.asarray(Scattering()(images.x_train[:3] / images.scale))
    groups = raw.reshape(3, -1, 27, 3)
    mean = groups.mean(axis=(1, 3), keepdims=True)
    variance = groups.var(axis=(1, 3), keepdims=True)
    expected = (groups - mean) / np.sqrt(variance + 1e-5)
    assert features.x_train.shape == (150, 2, 2, 81)
    np.testing.assert_allclose(
        features.x_train[:3], expected.reshape(3, 2, 2, 81), atol=5e-3
    )


def test_replacing_all_other_examples_does_not_change_the_features_of_one(
    images, features
):
    other = images.x_train[::-1].copy()
    other[0] = images.x_train[0]
    changed = with_features(
        "scatter_linear", dataclasses.replace(images, x_train=other)
    )
    np.testing.assert_allclose(changed.x_train[0], features.x_train[0], atol=2e-3)


@pytest.mark.parametrize("model", ["scatter_linear", "scatter_drawn"])
def test_an_extreme_image_stops_no_training_and_changes_no_other(
    images, model, monkeypatch
):
    """If it did, that there is a model would tell that there is no such image."""
    drawings = images.x_train[:60].astype("float32"), images.y_train[:60]
    monkeypatch.setitem(module._DRAWN, "digits", lambda number: drawings)
    plain = dataclasses.replace(
        images,
        x_train=images.x_train[:40].astype("float32"),
        y_train=images.y_train[:40],
    )
    extreme = plain.x_train.copy()
    for row, value in enumerate([0.0, 1.0, 1e10, 3e38, -3e38]):
        extreme[row] = value
    extreme[5, 3:5, 2] = 3e38
    expected = with_features(model, plain).x_train
    features = with_features(model, dataclasses.replace(plain, x_train=extreme)).x_train
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[6:], expected[6:], atol=2e-3)


def test_labels_and_tests_are_kept_and_the_note_tells(images, features):
    np.testing.assert_array_equal(features.y_train, images.y_train)
    assert len(features.x_test) == len(images.x_test)
    assert "scattering" in features.note and features.scale == 1.0


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_models_take_their_features(features, name):
    model = build_model(name, features)
    assert model.output_shape == (None, 10)


@pytest.fixture(scope="module")
def random_features():
    layer = RandomScattering(features=6)
    images = np.random.default_rng(0).random([4, 32, 32, 3]).astype("float32")
    return layer, images, np.asarray(layer(images))


def test_random_features_of_one_image_do_not_depend_on_another(random_features):
    layer, images, features = random_features
    np.testing.assert_allclose(layer(images[1:2])[0], features[1], atol=1e-4)


def test_a_mirror_image_has_nearly_the_same_random_features(random_features):
    """Nearly: pixels of the two images fall on different points of the grid."""
    layer, images, _ = random_features
    smooth = np.asarray(tf.image.resize(images[:, :5, :5], [32, 32]))
    usual, mirrored = np.asarray(layer(smooth)), np.asarray(layer(smooth[:, :, ::-1]))
    turned = np.asarray(layer(smooth[:, ::-1]))
    error = np.linalg.norm(usual - mirrored)
    assert error < 0.6 * np.linalg.norm(usual - turned)


def test_synthetic_images_are_the_same_everywhere_and_use_the_range():
    images = dead_leaves(3, 20, 24, 3)
    np.testing.assert_array_equal(images, dead_leaves(3, 20, 24, 3))
    assert images.shape == (3, 20, 24, 3)
    assert 0 <= images.min() < 0.2 and 0.8 < images.max() <= 1


def test_features_are_kept_and_found_again(images, tmp_path, monkeypatch):
    first = with_features("scatter_normalized", images, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1

    def fail(data):
        raise AssertionError("computed again")

    monkeypatch.setitem(FEATURES, "scatter_normalized", fail)
    again = with_features("scatter_normalized", images, tmp_path)
    np.testing.assert_array_equal(first.x_train, again.x_train)
    np.testing.assert_array_equal(first.x_test, again.x_test)
    assert (first.note, first.scale) == (again.note, again.scale)
    other = dataclasses.replace(images, x_train=images.x_train[::-1])
    with pytest.raises(AssertionError, match="computed again"):
        with_features("scatter_normalized", other, tmp_path)


def test_tables_have_no_scattering_features():
    x, y = np.zeros([4, 7]), np.arange(4) % 2
    with pytest.raises(ValueError, match="needs features"):
        with_features("scatter_linear", DataSet("table", x, y, x, y, 2))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_scattering_recipes_take_large_lots(name):
    recipe = find_recipe(name, "scatter_linear")
    assert recipe.model == "scatter_linear" and recipe.batch_size >= 4096


def test_a_private_linear_model_learns_from_few_features(features):
    import keras_dp_ext as dp

    model = build_model("scatter_linear", features)
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, l2_norm_clip=0.5, noise_multiplier=0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    lots = dp.data.poisson_batches(
        features.x_train, features.y_train.astype(np.int32), batch_size=50
    )
    model.fit(lots, epochs=10, verbose=0)
    logits = model.predict(features.x_test, verbose=0)
    assert np.mean(np.argmax(logits, 1) == features.y_test) > 0.6
