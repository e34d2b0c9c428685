"""docs/seeds.md: what it names is there."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "seeds.md"


def elements():
    """The second column of every row."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "| element":
            yield cells[1]


def names():
    text = "\n".join(elements())
    return sorted(set(re.findall(r"`([\w./:]+)`", text)))


def test_all_elements_are_told():
    assert len(list(elements())) >= 105


@pytest.mark.parametrize("name", names())
def test_what_is_named_exists(name):
    if name.startswith("tests/"):
        file, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text()
    elif name.startswith("benchmarks"):
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir()
    elif "." in name:
        module, *rest = name.split(".")
        found = importlib.import_module(f"keras_dp_ext.{module}")
        for part in rest:
            if not hasattr(found, part):
                found = importlib.import_module(f"{found.__name__}.{part}")
            else:
                found = getattr(found, part)
    else:
        # An argument or a name of a preset: somewhere in the package.
        files = (ROOT / "keras_dp_ext").rglob("*.py")
        assert any(re.search(rf"\b{name}\b", file.read_text()) for file in files)
