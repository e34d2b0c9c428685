"""The error for a Keras or TensorFlow whose private parts are not those we know."""

from __future__ import annotations

import importlib.metadata
from typing import Any


# A plain exception: AutoGraph keeps the class of no other.
class IncompatibleVersionError(Exception):
    """Something that keras_dp_ext relies on is missing in Keras or TensorFlow.

    Without it a check could be left out in silence, so nothing is trained.
    """


def incompatible(what: str) -> IncompatibleVersionError:
    """The error that names what is missing and the versions at hand.

    Args:
        what: What is not as expected, as a sentence without its full stop.
    """
    return IncompatibleVersionError(
        f"{what}. keras_dp_ext relies on it, and does not train without it. This is "
        f"TensorFlow {version_of('tensorflow')} with Keras {version_of('keras')}; "
        "docs/new_versions.md lists the versions that are tested."
    )


def require(owner: Any, name: str) -> Any:
    """The attribute `name` of something private; an error where it is missing."""
    try:
        return getattr(owner, name)
    except AttributeError:
        described = getattr(owner, "__name__", type(owner).__name__)
        raise incompatible(f"`{described}.{name}` is missing") from None


def version_of(distribution: str) -> str:
    """The version of an installed distribution, without importing it."""
    for name in (distribution, f"{distribution}-cpu", f"{distribution}-intel"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"
