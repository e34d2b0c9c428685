"""Python's garbage collector, out of the way while a step is traced."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """No search for garbage inside of the `with`.

    Tracing makes many objects of which none is garbage. To look through them again and
    again takes a few percent of a first step.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
