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
    """An epsilon for people: four digits, rounded up, and words for the extremes."""
    from keras_dp_ext.accounting.best_attack import rounded_up

    if math.isinf(value):
        return "infinite (no guarantee)"
    digits = 4 if value < 1e4 else 3
    return f"{rounded_up(value, digits):.{digits}g}"
