"""Which private optimizers have trained a variable, by their counters of releases."""

from __future__ import annotations

from collections.abc import Iterable

import keras

# On the variable itself: it is copied, shared between models and forgotten with it.
_ATTRIBUTE = "_private_trainings"


def former_trainings(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """The counters of all private optimizers that have trained any of the variables.

    All of them, in order: that the last one warned of the one before is of no use to
    the next.
    """
    counters = (
        counter
        for variable in variables
        for counter in getattr(variable, _ATTRIBUTE, ())
    )
    return list({id(counter): counter for counter in counters}.values())


def add_training(variables: Iterable[keras.Variable], counter: keras.Variable) -> None:
    """Notes that an optimizer with this counter trains the variables from now on."""
    for variable in variables:
        known = getattr(variable, _ATTRIBUTE, ())
        if not any(counter is other for other in known):
            setattr(variable, _ATTRIBUTE, (*known, counter))
