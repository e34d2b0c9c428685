"""The names of the data sets, for code that must not wait for TensorFlow."""

from __future__ import annotations

import difflib

NAMES = (
    "digits",
    "mnist",
    "fashion_mnist",
    "cifar10",
    "svhn_cropped",
    "adult",
    "imdb",
)

# Ends of the paths of files that can be loaded.
FILES = (".npz", ".csv")


def check_name(name: str) -> None:
    """Raises a `ValueError` with the nearest name if there is no such data set."""
    if name in NAMES or str(name).endswith(FILES):
        return
    similar = difflib.get_close_matches(str(name), NAMES, n=1)
    suggestion = f"Did you mean `{similar[0]}`? " if similar else ""
    raise ValueError(
        f"Argument `name` must be one of {', '.join(NAMES)}, or the path of an .npz or "
        f".csv file. {suggestion}Received: name={name}"
    )
