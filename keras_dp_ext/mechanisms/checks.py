"""Checks of the arguments that mechanisms share."""

from __future__ import annotations

import math
from typing import Any


def check_guarantee(guarantee: Any) -> None:
    """Raises unless `guarantee` is "proven" or "published"."""
    if guarantee not in ("proven", "published"):
        raise ValueError(
            'Argument `guarantee` must be "proven" or "published". '
            f"Received: guarantee={guarantee!r}"
        )


def check_noise_multiplier(noise_multiplier: Any) -> None:
    """Raises unless `noise_multiplier` is a finite number of at least zero."""
    try:
        valid = math.isfinite(noise_multiplier) and noise_multiplier >= 0
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(
            "Argument `noise_multiplier` must be a finite number, 0 (no noise and no "
            "privacy) or more. "
            f"Received: noise_multiplier={noise_multiplier}"
        )
