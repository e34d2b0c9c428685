"""The recipes of docs/recipes run as they stand, are short, and learn something."""

import pathlib
import re
import runpy

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "recipes"
RECIPES = sorted(FOLDER.glob("*.py"))

# What shows that a recipe learns, from its variables: far above chance, and below
# what it reaches every time.
LEARNS = {
    "custom_train_step": lambda v: v["accuracy"] > 0.8,
    "gan": lambda v: np.allclose(v["made"].mean(axis=0), [1.0, -0.5], atol=0.4),
    "multi_output": lambda v: v["history"]["digit_accuracy"][-1] > 0.8,
    "segmentation": lambda v: v["history"]["accuracy"][-1] > 0.92,
    "seq2seq": lambda v: v["history"]["accuracy"][-1] > 0.5,
    "siamese": lambda v: v["history"]["accuracy"][-1] > 0.75,
    "time_series": lambda v: v["history"]["mae"][-1] < 0.4,
    "vae": lambda v: v["losses"][-1] < 0.8 * v["losses"][0],
}


def test_every_recipe_is_listed_and_short():
    page = (FOLDER / "README.md").read_text()
    assert {recipe.stem for recipe in RECIPES} == set(LEARNS)
    for recipe in RECIPES:
        assert f"({recipe.name})" in page
        assert len(recipe.read_text().splitlines()) <= 75


@pytest.mark.filterwarnings("error:.*one microbatch at a time")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipe_runs_and_learns(recipe, capsys):
    variables = runpy.run_path(str(recipe))
    shown = re.search(r"at epsilon ([\d.]+)", capsys.readouterr().out)
    target = float(re.search(r"epsilon=([\d.]+)", recipe.read_text())[1])
    assert 0.9 * target < float(shown[1]) <= target
    assert LEARNS[recipe.stem](variables)
