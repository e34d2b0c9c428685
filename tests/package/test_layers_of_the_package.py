"""The package is laid out as docs/architecture.md says."""

import ast
import pathlib
import re

import pytest

import keras_dp_ext
from keras_dp_ext._compat import keras_internals

ROOT = pathlib.Path(keras_dp_ext.__file__).parent
TESTS = pathlib.Path(__file__).parents[1]

ARCHITECTURE = pathlib.Path(__file__).parents[2] / "docs" / "architecture.md"


def forbidden() -> dict[str, list[str]]:
    """By folder, what no file in it may import: the table in docs/architecture.md."""
    rows = re.findall(r"^\| `(\w+)/` \|.*\|(.*)\|$", ARCHITECTURE.read_text(), re.M)
    rules = {folder: re.findall(r"`(\w+/?)`", cell) for folder, cell in rows}
    rules["_compat"] = [f"{folder}/" for folder in rules if folder != "_compat"]
    return {
        folder: [
            f"keras_dp_ext.{name[:-1]}" if name.endswith("/") else name
            for name in names
        ]
        for folder, names in rules.items()
    }


FORBIDDEN = forbidden()


def test_the_table_names_every_folder():
    assert set(FORBIDDEN) == {path.parent.name for path in ROOT.glob("*/__init__.py")}


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
        elif isinstance(node, ast.Call) and _called(node) == "__setattr__":
            names.update(_strings(node))
    return names


def _private_names(tree: ast.AST) -> list[tuple[int, str]]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and _called(node) in ("getattr", "hasattr"):
            names += [(node.lineno, name) for name in _strings(node)]
    return [
        (line, name)
        for line, name in names
        if name.startswith("_") and not name.endswith("__")
    ]


def _called(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def _strings(call: ast.Call) -> list[str]:
    values = [getattr(argument, "value", None) for argument in call.args]
    return [value for value in values if isinstance(value, str)]


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
    of_no_folder = {
        "benchmarks",
        "docs",
        "gpu",
        "notebooks",
        "package",
        "third_party",
        "zoo",
    }
    across_folders = {"reliability"}
    tests = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*/test_*.py")}
    package = {path.parent.name.lstrip("_") for path in ROOT.glob("*/__init__.py")}
    assert tests == package | of_no_folder | across_folders
