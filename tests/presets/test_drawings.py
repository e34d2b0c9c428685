"""Drawings and what is learned from them: random numbers alone, and no data."""

import dataclasses

import numpy as np
import pytest

from keras_dp_ext.data import DataSet
from keras_dp_ext.presets import build_model, features, with_features
from keras_dp_ext.presets.drawn_digits import drawn_digits
from keras_dp_ext.presets.drawn_garments import drawn_garments
from keras_dp_ext.presets.whitening import within_class_whitening

DRAWN = {"mnist": drawn_digits, "fashion_mnist": drawn_garments}


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_follow_from_their_seed_and_use_the_range(name):
    images, labels = DRAWN[name](60, seed=3)
    np.testing.assert_array_equal(images, DRAWN[name](60, seed=3)[0])
    assert images.shape == (60, 28, 28, 1) and images.dtype == np.float32
    assert images.min() == 0.0 and 0.9 < images.max() <= 1.0
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 6))
    assert np.abs(images - DRAWN[name](60, seed=4)[0]).mean() > 0.05


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_of_one_kind_are_alike(name):
    """The mean drawings of ten kinds tell more than half of other drawings."""
    images, labels = DRAWN[name](600, seed=0)
    means = np.stack([images[labels == kind].mean(axis=0) for kind in range(10)])
    others, kinds = DRAWN[name](200, seed=1)
    distances = np.square(others[:, np.newaxis] - means).sum(axis=(2, 3, 4))
    assert np.mean(distances.argmin(axis=1) == kinds) > 0.5


def test_digits_keep_to_the_box_and_to_the_middle():
    images = drawn_digits(100)[0][..., 0]
    rows, columns = np.mgrid[:28, :28] + 0.5
    for image in images:
        for places in (rows, columns):
            assert abs((image * places).sum() / image.sum() - 14) < 2.0
            assert np.ptp(places[image > 0.5]) <= 21


def test_whitening_makes_differences_within_classes_equal_and_keeps_those_between():
    rng = np.random.default_rng(0)
    labels = np.arange(4000) % 2
    x = rng.normal(size=[4000, 4]) * [10.0, 5.0, 1.0, 0.1]
    x[:, 2] += 3.0 * labels
    white = x @ within_class_whitening(x, labels, 4, ridge=0.0)
    within = np.concatenate(
        [white[labels == k] - white[labels == k].mean(0) for k in (0, 1)]
    )
    covariance = within.T @ within / len(within)
    np.testing.assert_allclose(covariance, covariance[0, 0] * np.eye(4), atol=1e-4)
    between = white[labels == 1].mean(0) - white[labels == 0].mean(0)
    assert np.linalg.norm(between) == pytest.approx(
        3.0 * np.sqrt(covariance[0, 0]), rel=0.1
    )


def test_the_ridge_keeps_small_directions_small():
    rng = np.random.default_rng(0)
    x = rng.normal(size=[4000, 3]) * [10.0, 1.0, 0.01]
    projection = within_class_whitening(x, np.zeros(4000), 2, ridge=0.01)
    assert projection.shape == (3, 2)
    # (1 + 0.01)**-0.5 and (0.01 + 0.01)**-0.5
    np.testing.assert_allclose(
        np.linalg.norm(projection, axis=0), [0.995, 7.07], rtol=0.05
    )


@pytest.fixture(scope="module")
def few():
    images, labels = drawn_digits(60, seed=9)
    x = (255 * images).astype(np.uint8)
    return DataSet("mnist", x[:50], labels[:50], x[50:], labels[50:], 10, scale=255.0)


@pytest.fixture(autouse=True)
def fewer_drawings(monkeypatch):
    monkeypatch.setattr(features, "_DRAWINGS", 200)
    monkeypatch.setattr(features, "_COMPONENTS", 20)


def test_features_of_an_image_do_not_depend_on_others(few):
    made = with_features("scatter_drawn", few)
    assert made.x_train.shape == (50, 20) and "drawings" in made.note
    other = few.x_train[::-1].copy()
    other[0] = few.x_train[0]
    changed = with_features("scatter_drawn", dataclasses.replace(few, x_train=other))
    np.testing.assert_allclose(changed.x_train[0], made.x_train[0], atol=2e-3)
    assert np.abs(changed.x_train[1] - made.x_train[1]).max() > 0.01


def test_inputs_of_the_private_layer_have_one_length(few):
    """So that every gradient is clipped alike."""
    model = build_model("scatter_drawn", with_features("scatter_drawn", few))
    rows = np.random.default_rng(0).normal(size=[5, 20]) * [[1], [1e-3], [5], [9], [50]]
    for layer in model.layers[:-1]:
        rows = np.asarray(layer(rows))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 10.0, rtol=1e-4)


def test_there_are_drawings_for_some_data_only(few):
    with pytest.raises(ValueError, match="there are drawings for"):
        with_features("scatter_drawn", dataclasses.replace(few, name="cifar10"))
    small = dataclasses.replace(
        few, x_train=few.x_train[:, ::2, ::2], x_test=few.x_test[:, ::2, ::2]
    )
    with pytest.raises(ValueError, match="drawings have shape"):
        with_features("scatter_drawn", small)
