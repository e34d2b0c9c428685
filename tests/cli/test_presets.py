"""Presets: every recipe names a model that fits its data set."""

import numpy as np
import pytest

from benchmarks.headline import MODELS as HEADLINE
from keras_dp_ext.data import NAMES, DataSet
from keras_dp_ext.presets import (
    MODELS,
    RECIPES,
    build_model,
    default_model,
    find_recipe,
)

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
    assert find_recipe("mnist").model == "scatter_drawn"
    assert find_recipe("mnist", mechanism="encoding").model == "tanh_cnn"
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


@pytest.mark.parametrize("name", HEADLINE)
def test_the_command_without_further_arguments_is_the_headline(name):
    recipe = find_recipe(name)
    assert (recipe.model, recipe.accountant) == (HEADLINE[name], "pld")


def test_other_mechanisms_are_not_asked_for_an_accountant_of_gaussian_noise():
    for name in HEADLINE:
        assert find_recipe(name, mechanism="encoding").accountant == "rdp"


def test_mechanisms_are_compared_on_a_model_that_all_were_tuned_for():
    assert default_model("mnist", "dpsgd", "tanh") == "scatter_drawn"
    assert default_model("mnist", "dpsgd", "encoding") == "tanh_cnn"
    # Nobody has tuned encoding for these: they are compared all the same.
    assert default_model("cifar10", "dpsgd", "encoding") == "scatter_random"
    assert default_model("unknown", "dpsgd") == "mlp"
