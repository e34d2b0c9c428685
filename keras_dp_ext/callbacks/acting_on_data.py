"""Which callbacks let exact figures of the training data steer the training."""

from __future__ import annotations

import string
from collections.abc import Iterable

import keras

# What logs hold that is not computed from training examples.
_NOT_OF_TRAINING_DATA = frozenset(
    {"batch", "epoch", "epsilon", "published_epsilon", "learning_rate", "lr"}
)


def describe(callbacks: Iterable[keras.callbacks.Callback]) -> list[str]:
    """What each callback does that follows exact training data, in plain words.

    Keras' own callbacks are known; a custom one is not looked into. What
    they monitor on validation data (`val_...`) tells nothing about the training data.
    """
    found = (_describe(callback) for callback in callbacks)
    return list(dict.fromkeys(filter(None, found)))


def _describe(callback: keras.callbacks.Callback) -> str | None:
    name = type(callback).__name__
    if isinstance(callback, keras.callbacks.TerminateOnNaN):
        return (
            f"{name} ends the training by the exact loss of a batch of training data; "
            "an example without a finite gradient counts as zero, so leave it out"
        )
    monitor = getattr(callback, "monitor", None)
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        if callback.save_best_only and _is_of_training_data(monitor):
            return _steered(name, monitor, "chooses the weights that are kept")
        return _told_by_file_names(name, str(callback.filepath))
    if not _is_of_training_data(monitor):
        return None
    if isinstance(callback, keras.callbacks.EarlyStopping):
        return _steered(name, monitor, "decides when to stop")
    if isinstance(callback, keras.callbacks.ReduceLROnPlateau):
        return _steered(name, monitor, "changes the learning rate")
    return _steered(name, monitor, "acts")


def _steered(name: str, monitor: str, does: str) -> str:
    return (
        f'{name}(monitor="{monitor}") {does} by exact figures of the training data; '
        f'monitor validation data ("val_{monitor}") instead'
    )


def _told_by_file_names(name: str, path: str) -> str | None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(path) if field]
    except ValueError:
        return None  # Not a pattern that Keras could fill in either.
    told = [field for field in fields if _is_of_training_data(field)]
    if not told:
        return None
    return (
        f"{name} writes exact figures of the training data ({', '.join(told)}) into file "
        "names"
    )


def _is_of_training_data(monitor: object) -> bool:
    return (
        isinstance(monitor, str)
        and not monitor.startswith("val_")
        and monitor not in _NOT_OF_TRAINING_DATA
    )
