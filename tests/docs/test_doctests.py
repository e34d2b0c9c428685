"""Examples in docstrings run, and give what they say."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import keras_dp_ext

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(keras_dp_ext.__path__, "keras_dp_ext.")
    if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=lines.append)
    assert runner.failures == 0, "".join(lines)
