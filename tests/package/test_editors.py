"""What editors and type checkers know is what is there."""

import ast
import inspect
from pathlib import Path

import keras
import pytest

import keras_dp_ext as dp
from tools import stubs

ROOT = Path(dp.__file__).parent


def test_names_at_the_top_are_those_of_the_stub():
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    imported = {
        alias.asname: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(imported) == set(dp.__all__) - {"__version__"}
    assert dp.DPSGD is dp.optimizers.DPSGD
    assert dp.PrivacyAccountant is dp.callbacks.PrivacyAccountant
    for name, (module, _) in imported.items():
        if module != "keras_dp_ext":
            subpackage = getattr(dp, module.removeprefix("keras_dp_ext."))
            assert getattr(dp, name) is getattr(subpackage, name)


@pytest.mark.parametrize("name", sorted(stubs.classes()))
def test_static_signatures_are_the_true_ones(name):
    text = stubs.PATH.read_text()
    (node,) = [
        n
        for n in ast.parse(text).body
        if isinstance(n, ast.ClassDef) and n.name == name
    ]
    init = next(f for f in node.body if getattr(f, "name", "") == "__init__")
    static = {
        argument.arg: default
        for argument, default in zip(
            init.args.kwonlyargs, init.args.kw_defaults, strict=True
        )
    }
    actual = inspect.signature(getattr(dp.optimizers, name)).parameters
    if f"with Keras {keras.__version__};" in text:
        assert set(static) == set(actual), "Run `make stubs`."
    for argument in set(static) & set(actual):
        default = static[argument]
        if isinstance(default, ast.Constant) and default.value is not ...:
            assert default.value == actual[argument].default, argument
    assert next(iter(static)) == "learning_rate"


def test_an_editor_completes_the_arguments():
    jedi = pytest.importorskip("jedi")
    code = "import keras_dp_ext as dp\ndp.DPSGD("
    project = jedi.Project(ROOT.parent)
    (signature, *_) = jedi.Script(code, project=project).get_signatures()
    names = [parameter.name for parameter in signature.params]
    assert {"learning_rate", "l2_norm_clip", "noise_multiplier"} <= set(names)
    completions = jedi.Script(
        "import keras_dp_ext as dp\ndp.optimizers.DPSGD.for_b", project=project
    ).complete()
    assert "for_budget" in [completion.name for completion in completions]


def test_stubs_are_in_the_wheel():
    config = (ROOT.parent / "setup.cfg").read_text()
    assert "py.typed, *.pyi, optimizers/*.pyi" in config
