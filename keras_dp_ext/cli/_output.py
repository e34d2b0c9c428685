"""Where `keras-dp train` and `keras-dp compare` write."""

from __future__ import annotations

import tempfile
from pathlib import Path


def make_directory(directory: Path) -> None:
    """Makes an output directory, and sees that files can be written into it.

    Raises:
        ValueError: If they cannot.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise ValueError(
            "Argument `--output-dir` must be a directory that can be written. "
            f"Received: {directory} ({error.strerror})"
        ) from None
