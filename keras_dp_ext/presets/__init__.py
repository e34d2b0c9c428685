"""Presets: named models, and for each data set a recipe that trains them well."""

from keras_dp_ext.presets.features import FEATURES, with_features
from keras_dp_ext.presets.models import MODELS, build_model
from keras_dp_ext.presets.recipe import Recipe
from keras_dp_ext.presets.recipes import RECIPES, default_model, find_recipe

__all__ = [
    "FEATURES",
    "MODELS",
    "RECIPES",
    "Recipe",
    "build_model",
    "default_model",
    "find_recipe",
    "with_features",
]
