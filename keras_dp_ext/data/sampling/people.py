"""People as the unit of privacy: all rows of a person are drawn and bounded together.

A lot draws people. Each gets `k` consecutive rows of a batch: at most `k` rows of
theirs, then padding. The optimizer averages the gradients of the rows that are there and
bounds the average: one person, one microbatch.

**Why a person moves the sum by one bounded vector.** Slots are uniformly random, so that
a person more fills `k` rows of padding and moves nobody (`capacity.py`, with "person" for
"example"). Rows of padding alone add zero, so the sum changes by that person's vector and
by nothing else: add or remove, not change, and the sensitivity is that of one row.

**Why the choice of rows costs nothing.** Which `k` rows of a person are taken is drawn
independently of everybody else's data. Given that draw, a step is the sampled mechanism
with some bounded vector of this person, and dominated by the pair that the accountant
uses. The step itself is the mixture over the draw, with the same weights under both
neighbours, and a divergence that is jointly convex is at most that of the worst
component. An order that is kept for an epoch is no exception: condition on it first.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from keras_dp_ext._checks import check_integer


class People:
    """Who the rows belong to, and how many of a person's rows a lot takes.

    Args:
        user_ids: `[rows]` integers or strings.
        num_rows: How many rows the data have.
        rows_per_person: The most rows of one person in a lot.
    """

    def __init__(self, user_ids: Any, num_rows: int, rows_per_person: Any):
        check_integer("examples_per_user", rows_per_person)
        ids = _checked(user_ids, num_rows)
        _, self._person_of, counts = np.unique(
            ids, return_inverse=True, return_counts=True
        )
        self._counts = counts
        self._first = np.cumsum(counts) - counts
        self._num_rows = num_rows
        self.rows_per_person = int(rows_per_person)

    @property
    def count(self) -> int:
        """How many people there are."""
        return len(self._counts)

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """All rows, person by person, each person's in random order."""
        return np.lexsort((rng.random(self._num_rows), self._person_of))

    def rows_of(
        self, people: np.ndarray, order: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """`[lots, people * rows_per_person]` row numbers for drawn people.

        Args:
            people: `[lots, slots]` numbers of people; `count` stands for nobody.
            order: What `shuffled` returned. Of a person with more rows than a lot
                takes it is some that follow each other in this order.
            rng: Draws where they begin.
        """
        counts = np.append(self._counts, 0)[people]
        first = np.append(self._first, 0)[people]
        start = rng.integers(0, np.maximum(counts, 1))
        place = np.arange(self.rows_per_person)
        turn = (start[..., np.newaxis] + place) % np.maximum(counts, 1)[..., np.newaxis]
        rows = order[np.minimum(first[..., np.newaxis] + turn, self._num_rows - 1)]
        rows = np.where(place < counts[..., np.newaxis], rows, self._num_rows)
        return rows.reshape([len(people), -1]).astype(np.int32)


def people_of(user_ids: Any, num_rows: int, examples_per_user: Any) -> People | None:
    """The people of a sampler's arguments; `None` where each row is for itself."""
    if (user_ids is None) != (examples_per_user is None):
        raise ValueError(
            "Arguments `user_ids` and `examples_per_user` must be given together: the "
            "person of each row, and the most rows of one person in a lot. Received: "
            f"user_ids={'None' if user_ids is None else '...'}, "
            f"examples_per_user={examples_per_user}"
        )
    return None if user_ids is None else People(user_ids, num_rows, examples_per_user)


def _checked(user_ids: Any, num_rows: int) -> np.ndarray:
    """Ids of one type: a person who is 7 here and "7" there would count as two."""
    ids = np.asarray(user_ids) if hasattr(user_ids, "dtype") else list(user_ids)
    if isinstance(ids, list) or ids.dtype == object:
        # NumPy would turn several types into one, or keep them apart.
        kinds = {_kind(value) for value in ids}
        if len(kinds) > 1 or not kinds <= {"integers", "strings", "bytes"}:
            raise ValueError(
                "Argument `user_ids` must hold integers or strings, all of one type: "
                "one person under ids of two types would count as two, and a missing "
                f"id belongs to nobody. Received: {', '.join(sorted(kinds))}"
            )
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iuSUO":
        raise ValueError(
            "Argument `user_ids` must hold integers or strings: floating-point ids "
            "may be missing (NaN), or round to those of other people. Received: "
            f"user_ids.dtype={ids.dtype}"
        )
    if ids.shape != (num_rows,):
        raise ValueError(
            f"Argument `user_ids` must have one id for each of the {num_rows} rows. "
            f"Received: user_ids.shape={ids.shape}"
        )
    return ids


def _kind(value: Any) -> str:
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return "integers"
    known = {str: "strings", bytes: "bytes"}
    for kind, name in known.items():
        if isinstance(value, kind):
            return name
    return type(value).__name__
