"""Presets: every recipe names a model that fits its data set."""

import numpy as np
import pytest

from keras_dp_ext.data import NAMES, DataSet
from keras_dp_ext.presets import MODELS, RECIPES, build_model, find_recipe

SHAPES = {
    "digits": (8, 8, 1),
    "mnist": (28, 28, 1),
    "fashion_mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
    "svhn_cropped": (32, 32, 3),
    "adult": (107,),
    "imdb": (256,),
}


def tiny(name: str) -> DataSet:
    classes = 2 if name in ("adult", "imdb") else 10
    x = np.zeros([classes, *SHAPES[name]], np.uint8)
    y = np.arange(classes)
    return DataSet(name, x, y, x, y, classes)


def test_every_data_set_has_a_recipe():
    assert set(RECIPES) == set(NAMES) == set(SHAPES)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_builds_a_model_for_its_data(name):
    data = tiny(name)
    for recipe in RECIPES[name]:
        model = build_model(recipe.model, data)
        assert model.output_shape == (None, data.num_classes)
        assert model.predict(data.x_train, verbose=0).shape[0] == len(data.x_train)


def test_the_mnist_network_is_the_one_that_papers_use():
    assert build_model("tanh_cnn", tiny("mnist")).count_params() == 26_010


def test_recipes_are_found_by_model_and_mechanism():
    assert find_recipe("mnist").model == "tanh_cnn"
    assert find_recipe("mnist", "pca_mlp").mechanism_arguments["l2_norm_clip"] == 4.0
    for name in ("digits", "mnist"):
        assert find_recipe(name, mechanism="encoding").mechanism == "encoding"
    budgets = {
        epsilon: find_recipe("mnist", "pca_mlp", target_epsilon=epsilon)
        for epsilon in (0.5, 2.0, 8.0)
    }
    assert budgets[0.5] == budgets[2.0] != budgets[8.0]
    unknown = find_recipe("my_data", "linear")
    assert unknown.model == "linear" and set(MODELS) >= {unknown.model}
