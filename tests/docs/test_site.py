"""The site is built without a warning, shows what it should, and loads nothing."""

import html
import pathlib
import re
import subprocess
import sys
from urllib.parse import unquote

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    """On GitHub, where the pages are read as files."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith("#"):
            continue
        path = page.parent / unquote(target.partition("#")[0])
        # The site makes pages of the notebooks.
        assert path.exists() or "notebooks/" in target, target


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    result = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_optimizers_show_their_arguments_and_what_they_mean(site):
    text = text_of(site / "api" / "optimizers.html")
    assert re.search(r"noise_multiplier:\s+float\s+=\s+1\.1", text)
    assert "Standard deviation of the noise, in units of C" in text
    assert "An optimizer whose noise makes a training end" in text
    assert "Clamps gradients rank by rank" in text  # EncodedSGD


def test_examples_are_code(site):
    page = (site / "api" / "accounting.html").read_text()
    assert "&gt;&gt;&gt;" in page and "<blockquote>" not in page


def test_notebooks_have_their_figures_and_recipes_their_code(site):
    page = (site / "notebooks" / "01_quick_start.html").read_text()
    figures = re.findall(r'src="(01_quick_start_\d\.png)"', page)
    assert figures and all((site / "notebooks" / name).exists() for name in figures)
    assert "class GAN" in text_of(site / "recipes" / "gan.html")


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)", text)
        loaded += re.findall(r"<link[^>]+stylesheet[^>]+href=\"(https?:[^\"]+)", text)
        assert loaded == [], page.name
