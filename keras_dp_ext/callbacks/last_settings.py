"""With which delta a model was accounted for last, for a report after training."""

from __future__ import annotations

import weakref
from typing import Any

_SETTINGS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def remember(model: Any, **settings: Any) -> None:
    """Keeps settings as long as the model lives."""
    _SETTINGS[model] = settings


def settings_of(model: Any) -> dict[str, Any]:
    """What was remembered for the model; empty if nothing was."""
    return _SETTINGS.get(model, {})
