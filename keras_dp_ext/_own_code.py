"""Models and mechanisms of the user's own, named `module:name` on the command line."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def is_own(identifier: str) -> bool:
    """Whether an identifier names code of the user's own."""
    return ":" in identifier


def import_own(identifier: str, argument: str) -> Any:
    """Imports `module:name`, also from the current directory.

    Args:
        identifier: The module and what to take from it.
        argument: The argument that it was given for, for errors.

    Raises:
        ValueError: If it cannot be imported.
    """
    module, _, name = identifier.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"Argument `{argument}` must name something that can be imported. "
            f"Received: {argument}={identifier} ({error})"
        ) from error
