"""Examples that do as much as one example can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: One example: a row for each array of the data.
Example = tuple[np.ndarray, ...]


def worst_examples(arrays: Sequence[np.ndarray]) -> dict[str, Example]:
    """One example of each kind, by name, made from a row of the data.

    Args:
        arrays: The data, first its inputs and then, if there are any, its targets.

    Returns:
        "huge" and "opposed" use up what the bound allows; the others try to slip
        through it: by not being numbers, by being too small or too large for
        float32, by being somebody else's twin, by the first and the last token.
    """
    first = tuple(array[0] for array in arrays)
    if not np.issubdtype(arrays[0].dtype, np.floating):
        # Nothing to scale in the inputs, but extremes of what occurs.
        return {
            "twin": first,
            "least": tuple(_extreme(array, np.min) for array in arrays),
            "greatest": tuple(_extreme(array, np.max) for array in arrays),
        }
    return {
        "twin": first,
        "huge": _scaled(first, 1e4),
        "opposed": _scaled(first, -1e4),
        "overflowing": _scaled(first, 1e38),
        "tiny": _scaled(first, 1e-30),
        "not a number": _filled(first, np.nan),
        "infinite": _filled(first, np.inf),
    }


def null_example(arrays: Sequence[np.ndarray]) -> Example | None:
    """An example without a gradient: it is not a number, and so counts as nothing.

    Returns:
        `None` where all arrays are integers or strings.
    """
    if not any(np.issubdtype(array.dtype, np.floating) for array in arrays):
        return None
    return _filled(tuple(array[0] for array in arrays), np.nan)


def with_last(
    arrays: Sequence[np.ndarray], example: Example | None, times: int = 1
) -> Example:
    """The data with this example as its last rows; `None` adds nothing."""
    if example is None:
        return tuple(array.copy() for array in arrays)
    return tuple(
        np.concatenate([array, np.asarray([row] * times, array.dtype)])
        for array, row in zip(arrays, example, strict=True)
    )


def _scaled(example: Example, factor: float) -> Example:
    """Only the inputs: targets of that size would be another kind of mistake."""
    with np.errstate(over="ignore"):
        inputs = (example[0] * factor).astype(example[0].dtype)
    return (inputs, *example[1:])


def _filled(example: Example, value: float) -> Example:
    """With one value in place of every number with a fraction."""
    return tuple(
        np.full_like(row, value) if np.issubdtype(row.dtype, np.floating) else row
        for row in map(np.asarray, example)
    )


def _extreme(array: np.ndarray, choose: Callable[..., Any]) -> np.ndarray:
    if not np.issubdtype(array.dtype, np.number):
        return array[0]
    return np.full_like(array[0], choose(array))
