"""TensorFlow without the lines that it logs while it is imported."""

from __future__ import annotations

import os
import sys
import tempfile


def import_tensorflow() -> None:
    """Imports TensorFlow quietly, so that an error is one line.

    Its libraries write to file descriptor 2 before any setting could stop them. If the
    import fails, what they had to say is shown.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:
        return  # There is no stderr to keep clean.
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            log.seek(0)
            os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
