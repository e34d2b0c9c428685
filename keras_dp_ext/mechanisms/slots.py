"""State that a mechanism keeps for each coordinate of the model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any


def slot_maker(
    variables: Sequence[Any], add_variable: Callable[..., Any]
) -> Callable[..., list[Any]]:
    """A function that makes a float variable of the shape of each variable.

    Args:
        variables: As for `Mechanism.build`.
        add_variable: As for `Mechanism.build`.

    Returns:
        `slots(name, initializer="zeros", saved=True)`.
    """
    return functools.partial(_slots, variables, add_variable)


def _slots(
    variables: Sequence[Any],
    add_variable: Callable[..., Any],
    name: str,
    initializer: str = "zeros",
    saved: bool = True,
) -> list[Any]:
    return [
        add_variable(
            shape=tuple(variable.shape),
            dtype="float32",
            name=f"{name}_{index}",
            initializer=initializer,
            saved=saved,
        )
        for index, variable in enumerate(variables)
    ]
