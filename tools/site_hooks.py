"""Hooks of the site, named in mkdocs.yml: notebooks and recipes become ordinary pages.

So they are searched, their links are checked, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import nbformat
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
RECIPES = ROOT / "docs" / "recipes"

# The first cell installs the package where it is missing: of no interest here.
_INSTALLATION = "# Where the package is missing"


def on_files(files, config):
    """Adds a page for each recipe and each notebook, with its kept outputs."""
    for path in sorted(RECIPES.glob("*.py")):
        page = f"# {path.stem}.py\n\n" + _fenced(path.read_text(), "python")
        files.append(File.generated(config, f"recipes/{path.stem}.md", content=page))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, figures = as_markdown(path)
        uri = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, uri, content=page))
        for name, png in figures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=png))
    return files


def on_page_markdown(markdown, page, config, files):
    """The list of recipes links to their pages, not to the files."""
    if page.file.src_uri == "recipes/README.md":
        return re.sub(r"\((\w+)\.py\)", r"(\1.md)", markdown)
    return markdown


def as_markdown(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and the figures that it shows, by name."""
    figures: dict[str, bytes] = {}
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(re.sub(r"\.ipynb([)#])", r".md\1", cell.source))
        elif cell.source.startswith(_INSTALLATION):
            parts.append(_details("Where the package is missing", cell.source))
        elif cell.cell_type == "code":
            parts.append(_fenced(cell.source, "python"))
            parts.extend(_outputs(cell, path.stem, figures))
    return "\n\n".join(parts) + "\n", figures


def _outputs(cell, stem: str, figures: dict[str, bytes]) -> Iterator[str]:
    text = ""  # A stream may come in several pieces.
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            name = f"{stem}_{len(figures) + 1}.png"
            figures[name] = base64.b64decode(data["image/png"])
            if text:
                yield _fenced(text, "text")
                text = ""
            yield f"![output of the cell above]({name})"
        else:
            text += output.get("text", data.get("text/plain", ""))
    if text:
        yield _fenced(text, "text")


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"


def _details(title: str, code: str) -> str:
    return f'??? note "{title}"\n\n' + textwrap.indent(_fenced(code, "python"), "    ")
