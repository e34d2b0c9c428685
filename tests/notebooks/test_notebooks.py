"""Notebooks run from top to bottom, and keep the outputs of a run without errors."""

import os

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

from notebooks.execute import FOLDER, execute  # noqa: E402

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def check_outputs(notebook):
    """The outputs of one run from top to bottom, without errors, with figures."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_show_no_error(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    check_outputs(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    if "import keras_hub" in path.read_text():
        pytest.importorskip("keras_hub", reason="pip install keras-dp-ext[hub]")
    # Small data: what a newcomer without any has.
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_DP_DATA"}
    check_outputs(execute(path, environment))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_installed_under_a_name_that_is_not_ours(
    path, tmp_path, monkeypatch
):
    first = next(c for c in nbformat.read(path, 4).cells if c.cell_type == "code")
    code = "".join(
        line.replace("%pip", "raise AssertionError #").replace("%matplotlib", "#")
        for line in first.source.splitlines(keepends=True)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="Upload the wheel"):
        exec(code, {})
