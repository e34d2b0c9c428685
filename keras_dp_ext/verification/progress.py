"""A line for users who wait: printed once verification takes long."""

from __future__ import annotations

import sys
import threading
from typing import Any

_PATIENCE = 5.0


class Progress:
    """Says after some seconds what is going on, if it still is.

    Args:
        message: The line.
        seconds: After how many to print it.
    """

    def __init__(self, message: str, seconds: float = _PATIENCE):
        self._timer = threading.Timer(seconds, self._say, [message])
        self._timer.daemon = True

    @staticmethod
    def _say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        self._timer.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._timer.cancel()
