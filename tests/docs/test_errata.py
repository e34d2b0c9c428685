"""Every derivation in docs/errata.md comes with a check; here they all run."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "errata.md"
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SECTIONS = [
    re.findall(r"^#+ (.*)$", TEXT[: TEXT.index(block)], re.MULTILINE)[-1]
    for block in BLOCKS
]


@pytest.mark.parametrize("block", BLOCKS, ids=SECTIONS)
def test_the_check_holds(block):
    assert "assert" in block
    exec(compile(block, str(PAGE), "exec"), {})


def test_tests_and_figures_that_are_named_exist():
    root = PAGE.parents[1]
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT):
        assert not name or f"def {name}(" in (root / path).read_text(), (path, name)
    for figure in re.findall(r"\]\((results/[\w.]+)\)", TEXT):
        assert (PAGE.parent / figure).exists(), figure
