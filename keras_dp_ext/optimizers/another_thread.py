"""Reading and writing variables while this thread traces a graph."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any


def in_another_thread(function: Callable[[], Any]) -> Any:
    """Runs `function` where no graph is being traced, also for one of several replicas."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
