"""Examples in docstrings run, and give what they say."""

import doctest
import importlib
import inspect
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


def public_stages():
    stages = (
        keras_dp_ext.bounding,
        keras_dp_ext.mechanisms,
        keras_dp_ext.noise,
        keras_dp_ext.optimizers,
        keras_dp_ext.refining,
    )
    for module in stages:
        for name in module.__all__:
            value = getattr(module, name)
            concrete = callable(value) and not inspect.isabstract(value)
            if concrete and name != "PrivateOptimizer":
                yield f"{module.__name__}.{name}", value
    yield "register_rule", keras_dp_ext.gradients.register_rule


def test_optimizers_mechanisms_bounds_noises_and_rules_have_an_example():
    without = [name for name, value in public_stages() if ">>>" not in value.__doc__]
    assert not without


@pytest.mark.parametrize("name", ["DPSGD", "AdaClipAdam", "BandMFSGD"])
def test_examples_of_made_optimizers_are_run(name):
    """`test_examples_in_docstrings_run` finds them where they are exported."""
    tests = doctest.DocTestFinder().find(keras_dp_ext.optimizers)
    (own,) = (test for test in tests if test.name.endswith(f"optimizers.{name}"))
    assert [e.source for e in own.examples][-1].startswith(f"model.compile({name}(")
