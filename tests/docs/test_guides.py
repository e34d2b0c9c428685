"""The guides of the site run as they stand, from top to bottom, on small data."""

import ast
import doctest
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import keras_dp_ext as dp

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(
        DOCS / f"{name}.md"
        for name in ("index", "clipping", "correlated_noise", "sampling")
    ),
    *sorted((DOCS / "guides").glob("*.md")),
]

# That it learns, far above chance, and below what it has every time.
LEAST_ACCURACY = {
    "first_model": 0.8,
    "images": 0.8,
    "tables": 0.75,
    "text": 0.8,
    "transformer": 0.8,
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with the files that the guides name."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, pulse = rng.integers(18, 90, 2500), rng.normal(70, 10, 2500)
    city = rng.choice(["Rome", "Oslo", "Bonn"], 2500)
    ill = age + 30 * (city == "Oslo") + rng.normal(0, 8, 2500) > 65
    rows = [
        f"{a},{p:.0f},{c},{'ill' if i else 'well'}"
        for a, p, c, i in zip(age, pulse, city, ill, strict=True)
    ]
    (tmp_path / "patients.csv").write_text(
        "\n".join(["age,pulse,city,diagnosis", *rows])
    )
    for label in ("cats", "dogs"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(20):
            image = Image.fromarray(rng.integers(0, 255, [16, 16, 3], np.uint8))
            image.save(tmp_path / "photos" / label / f"{number}.png")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.stem
)
def test_the_guide_runs(page, place):
    namespace = {}
    if "import keras_hub" in page.read_text():
        pytest.importorskip("keras_hub", reason="pip install keras-dp-ext[hub]")
    if "MirroredStrategy" in page.read_text():
        # Two strategies in one process wait for each other's collectives.
        script = "\n".join(blocks(page, "python"))
        subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
        return
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), namespace)
    if "history" in namespace:
        epochs = namespace["history"].history
        assert 0 < epochs["epsilon"][-1] <= 3.0 + 1e-6
        accuracy = epochs.get("val_accuracy", epochs.get("accuracy", [1.0]))[-1]
        assert accuracy > LEAST_ACCURACY.get(page.stem, 0.0)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "pycon")], ids=lambda p: p.stem
)
def test_the_figures_of_the_guide_are_true(page):
    text = "\n".join(blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    assert test.examples
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0


def messages():
    """All texts of the package, with what is filled in left out."""
    for path in pathlib.Path(dp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(getattr(part, "value", ""))
                    if isinstance(part, ast.Constant)
                    else "…"
                    for part in node.values
                )


def test_the_messages_of_the_troubleshooting_page_exist():
    text = (DOCS / "guides" / "troubleshooting.md").read_text()
    quoted = [
        row.split("|")[1].strip()
        for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)
        if not row.startswith(("|---", "| the message"))
    ]
    assert len(quoted) > 20
    known = "\n".join(messages())
    of_keras = (
        "Dimensions must be equal",
        "Your input ran out of data",
        "When `num_oov_indices=0` all inputs should be in vocabulary",
    )
    assert [q for q in quoted if q not in known and q not in of_keras] == []
