"""docs/architecture.md says what a folder must not know; this says it again."""

import ast
import pathlib

import pytest

import keras_dp_ext
from keras_dp_ext._compat import keras_internals

ROOT = pathlib.Path(keras_dp_ext.__file__).parent
TESTS = pathlib.Path(__file__).parents[1]

# Folder: what no file in it may import, at the top or inside of a function.
FORBIDDEN = {
    "_compat": ["keras_dp_ext.optimizers", "keras_dp_ext.mechanisms"],
    "accounting": ["keras_dp_ext.optimizers", "keras_dp_ext.mechanisms"],
    "bounding": ["keras", "keras_dp_ext.optimizers", "keras_dp_ext.mechanisms"],
    "gradients": [
        "keras_dp_ext.optimizers",
        "keras_dp_ext.mechanisms",
        "keras_dp_ext.bounding",
        "keras_dp_ext.accounting",
    ],
    "mechanisms": ["keras_dp_ext.optimizers", "keras_dp_ext.callbacks"],
    "noise": ["keras", "keras_dp_ext.bounding", "keras_dp_ext.optimizers"],
    "refining": ["keras", "keras_dp_ext.bounding", "keras_dp_ext.optimizers"],
    "data": ["keras_dp_ext.optimizers", "keras_dp_ext.mechanisms"],
    "verification": ["keras_dp_ext.optimizers", "keras_dp_ext.mechanisms"],
    "optimizers": ["keras_dp_ext.callbacks", "keras_dp_ext.cli"],
}


def imported(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_folder_does_not_know_what_it_must_not(folder):
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in imported(path)
        for other in FORBIDDEN[folder]
        if name == other or name.startswith(f"{other}.")
    ]
    assert not found, "\n".join(found)


def test_what_is_private_elsewhere_is_used_in_compat_only():
    """Private names are our own, or methods of Keras whose presence is checked."""
    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    checked = {
        *keras_internals._OPTIMIZER_HOOKS,
        *keras_internals._BACKUP_HOOKS,
        *keras_internals._BACKUP_ATTRIBUTES,
        "_SubParsersAction",  # A type hint; argparse has no public name for it.
    }
    own = {name for tree in trees.values() for name in _defined(tree)}
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in trees.items()
        if "_compat" not in path.parts
        for line, name in _private_names(tree)
        if name not in own | checked
    ]
    assert not found, "\n".join(found)


def _defined(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            "__setattr__"
        ):
            names.update(a.value for a in node.args if isinstance(a, ast.Constant))
    return names


def _private_names(tree: ast.AST) -> list[tuple[int, str]]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "getattr",
            "hasattr",
        ):
            names += [
                (node.lineno, argument.value)
                for argument in node.args
                if isinstance(argument, ast.Constant)
            ]
    return [
        (line, name)
        for line, name in names
        if isinstance(name, str) and name.startswith("_") and not name.endswith("__")
    ]


def test_accounting_never_needs_tensorflow_at_the_top():
    for path in sorted((ROOT / "accounting").rglob("*.py")):
        top = ast.parse(path.read_text()).body
        names = {
            alias.name
            for node in top
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"tensorflow", "keras"}, path


def test_every_folder_of_the_package_has_one_of_tests():
    """A test lives where its subject lives; what has no one subject is listed here."""
    of_no_folder = {"benchmarks", "docs", "gpu", "notebooks", "package", "zoo"}
    across_folders = {"reliability"}
    tests = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*/test_*.py")}
    package = {path.parent.name.lstrip("_") for path in ROOT.glob("*/__init__.py")}
    assert tests == package | of_no_folder | across_folders
