"""The package is laid out as docs/architecture.md says."""

import ast
import pathlib
import re

import keras
import pytest
import tensorflow as tf

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


def test_the_row_analysis_reads_graphs_and_knows_nothing_else():
    """`gradients/` asks it where rows are: it must not ask back."""
    known = ("_compat", "gradients.graph", "verification.row_analysis")
    found = [
        f"{path.name} imports {name}"
        for path in sorted((ROOT / "verification/row_analysis").rglob("*.py"))
        for name in imported(path)
        if name.startswith("keras_dp_ext.")
        and not name.removeprefix("keras_dp_ext.").startswith(known)
    ]
    assert not found, "\n".join(found)


CHECKED = {
    *keras_internals._OPTIMIZER_HOOKS,
    *keras_internals._BACKUP_HOOKS,
    *keras_internals._BACKUP_ATTRIBUTES,
    "_SubParsersAction",  # A type hint; argparse has no public name for it.
}


def test_what_is_private_elsewhere_is_used_in_compat_only():
    """Private names are our own, or methods of Keras whose presence is checked."""
    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    own = {name for tree in trees.values() for name in _defined(tree)}
    theirs = _of_keras_and_tensorflow()
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in trees.items()
        if "_compat" not in path.parts
        for line, name in [
            *_private_names(tree, own | CHECKED),
            *_names_of_others(tree, theirs - CHECKED),
        ]
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "tensor._handle_data",
        "getattr(tensor, '_handle_data', None)",
        "vars(model)['_loss_tracker']",
        "model.__dict__['_loss_tracker']",
        "operator.attrgetter('_loss_tracker')(model)",
        "setattr(model, '_loss_tracker', None)",
        "from keras.models import _private",
        "graph._variables",  # We have a `_variables` of our own.
        "getattr(graph, 'captures', ())",
        "graph.captures",
        "graph.capture(tensor)",
    ],
)
def test_a_private_name_is_found_however_it_is_written(code):
    tree = ast.parse(code)
    allowed = {"_variables", *CHECKED}
    theirs = _of_keras_and_tensorflow()
    assert [*_private_names(tree, allowed), *_names_of_others(tree, theirs)]


def _of_keras_and_tensorflow() -> set[str]:
    """What objects of theirs have and the public API of Keras and TensorFlow has not."""
    graph = tf.__internal__.FuncGraph("graph")
    with graph.as_default():
        symbolic = tf.constant(1.0)
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    things = [
        *(graph, symbolic, symbolic.op, tf.constant(1.0), tf.Variable(1.0)),
        *(model, model.layers[0], model.optimizer, model.weights[0]),
        tf.data.Dataset.range(2).batch(2),
    ]
    names = {name for thing in things for name in dir(thing) if _is_private(name)}
    of_traced_graphs = set(dir(graph)) - set(dir(tf.Graph()))
    return names | {n for n in of_traced_graphs if "capture" in n or n == "outer_graph"}


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


_BY_NAME = ("getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller")


def _private_names(tree: ast.AST, allowed: set[str]) -> list[tuple[int, str]]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and _called(node) in _BY_NAME:
            names += [(node.lineno, name) for name in _strings(node)]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names.append((node.lineno, str(node.slice.value)))
        elif isinstance(node, ast.ImportFrom) and "keras_dp_ext" not in str(
            node.module
        ):
            names += [(node.lineno, alias.name) for alias in node.names]
    return [
        (line, name)
        for line, name in names
        if _is_private(name) and name not in allowed
    ]


def _names_of_others(tree: ast.AST, theirs: set[str]) -> list[tuple[int, str]]:
    """Names of theirs on anything but `self`, also where we have the same name."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_ours(node.value):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and _called(node) in _BY_NAME:
            names += [(node.lineno, name) for name in _strings(node)]
    return [(line, name) for line, name in names if name in theirs]


def _is_ours(value: ast.AST) -> bool:
    ours = ("self", "cls", "ledger", "tf_internals")
    return isinstance(value, ast.Name) and value.id in ours


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


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
