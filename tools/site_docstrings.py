"""Docstrings as the site shows them: examples become blocks of code.

Our docstrings have doctests that are not indented under `Example:`, which Markdown would
take for quotations. Named in mkdocs.yml, as an extension of Griffe.
"""

from __future__ import annotations

import re

import griffe


class FencedDoctests(griffe.Extension):
    """Puts doctests between fences, under a bold title."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The docstring with a fence around every doctest.

    >>> print(fenced("Example:\\n\\n>>> 1 + 1\\n2\\n\\nThe end."))
    **Example**
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    The end.
    """
    text = re.sub(r"^Examples?:$", "**Example**", text, flags=re.MULTILINE)
    doctest = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
    return doctest.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
