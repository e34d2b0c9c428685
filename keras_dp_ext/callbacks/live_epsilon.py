"""Epsilon in the progress bar, between the ends of two epochs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class LiveEpsilon:
    """What an epoch has spent at most, batch by batch.

    An exact figure for every batch would cost time, and counting the releases would make
    Keras wait for the device. So epsilon is computed at a few points of the epoch, and
    what is shown is that of the next one: never less than what is spent, and, as epsilon
    grows with every release, never falling.

    Args:
        epsilon_of: From a number of releases to epsilon.
        releases: Releases before this epoch.
        accumulation: Batches of one lot.
        steps: Batches of the epoch, if known.
        points: At how many points of the epoch epsilon is computed.
        releases_per_lot: How many releases each lot makes.
    """

    def __init__(
        self,
        epsilon_of: Callable[[int], float],
        releases: int,
        accumulation: int = 1,
        steps: int | None = None,
        points: int = 50,
        releases_per_lot: Callable[[], int] = lambda: 1,
    ):
        self._epsilon_of = epsilon_of
        self._releases = releases
        self._accumulation = accumulation
        self._planned = None if not steps else math.ceil(steps / accumulation)
        self._stride = max(1, math.ceil((self._planned or points) / points))
        self._per_lot = releases_per_lot
        self._known: dict[int, float] = {}

    def after(self, batch: int, limit: float = math.inf) -> float:
        """Epsilon after this batch, at most.

        Args:
            batch: Index of the batch in its epoch.
            limit: Releases, in all, after which the training will stop.
        """
        lots, per_lot = math.ceil((batch + 1) / self._accumulation), self._per_lot()
        point = self._stride * math.ceil(lots / self._stride)
        if self._planned is not None and lots <= self._planned:
            point = min(point, self._planned)
        made: Any = max(lots * per_lot, min(point * per_lot, limit - self._releases))
        if made not in self._known:
            self._known[made] = self._epsilon_of(self._releases + made)
        return self._known[made]
