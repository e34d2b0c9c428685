"""Features of the scattering presets: one image at a time, nothing learned."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_dp_ext.data import DataSet, Scattering, load
from keras_dp_ext.presets import (
    FEATURES,
    MODELS,
    build_model,
    find_recipe,
    with_features,
)


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


def test_labels_and_tests_are_kept_and_the_note_tells(images, features):
    np.testing.assert_array_equal(features.y_train, images.y_train)
    assert len(features.x_test) == len(images.x_test)
    assert "scattering" in features.note and features.scale == 1.0


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_models_take_their_features(features, name):
    model = build_model(name, features)
    assert model.output_shape == (None, 10)


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
