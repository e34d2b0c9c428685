"""The error for a Keras or TensorFlow whose private parts are not those we know."""

from __future__ import annotations

import importlib.metadata
import os
import re
import warnings
from typing import Any

#: From, and up to but without. As in setup.cfg; `make test-floor` and `make
#: test-newest` run the tests at both ends, `make test-colab` in between.
TESTED_VERSIONS = {"tensorflow": ("2.18", "2.22"), "keras": ("3.10", "3.16")}

#: Set to anything, it makes a warning of the error for versions out of range.
OVERRIDE = "KERAS_DP_EXT_UNTESTED_VERSIONS"


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


def check_versions() -> None:
    """Requires Keras and TensorFlow to be of the versions that were tested.

    Reads what is installed and imports neither.
    """
    for distribution, (first, end) in TESTED_VERSIONS.items():
        version = version_of(distribution)
        if _numbers(first) <= _numbers(version) < _numbers(end):
            continue
        message = (
            f"keras_dp_ext is tested with {distribution} >= {first}, < {end}. Received: "
            f"{distribution} {version}. It relies on private parts of Keras and "
            "TensorFlow, and a check of privacy that no longer works would not be "
            f'noticed. Run `pip install "{distribution}>={first},<{end}"`, or see '
            f"docs/new_versions.md; {OVERRIDE}=1 turns this error into a warning."
        )
        if not os.environ.get(OVERRIDE):
            raise IncompatibleVersionError(message)
        warnings.warn(message, stacklevel=2)


def _numbers(version: str) -> tuple[int, ...]:
    """`2.20.0rc1` as (2, 20); a version that cannot be read is below all others."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


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
