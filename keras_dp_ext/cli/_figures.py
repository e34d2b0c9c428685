"""How the commands print figures, and write them as JSON."""

from __future__ import annotations

import math
from typing import Any


def plain(value: Any) -> Any:
    """JSON has no infinity: "inf", which `float` reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def figure(value: float) -> str:
    """An epsilon for people: four digits, and words for the extremes."""
    if math.isinf(value):
        return "infinite (no guarantee)"
    return f"{value:.4g}" if value < 1e4 else f"{value:.3g}"
