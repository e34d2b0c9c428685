"""Weights that are used several times: the sum over their uses."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.contributions.base import Contribution, RowwiseMap
from keras_dp_ext.gradients.contributions.outer_products import OuterProducts


class Total(Contribution):
    """The sum of several contributions to one variable (shared weights)."""

    def __init__(self, parts: Sequence[Contribution]):
        self.shape = parts[0].shape
        self._parts = list(parts)

    @property
    def rows_at_once(self) -> int | None:  # type: ignore[override]
        limits = [part.rows_at_once for part in self._parts]
        return min((limit for limit in limits if limit), default=None)

    def norm_squared(self, scale: tf.Tensor | None = None) -> tf.Tensor:
        return self._built.norm_squared(scale)

    def weighted_sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        return tf.add_n([part.weighted_sum(coefficients) for part in self._parts])

    def rows(self) -> tf.Tensor:
        return tf.add_n([part.rows() for part in self._parts])

    def map_factors(self, change: RowwiseMap) -> Contribution:
        return Total([part.map_factors(change) for part in self._parts])

    def of_at_most(self, rows: int) -> Contribution:
        return Total([part.of_at_most(rows) for part in self._parts])


def total(parts: Sequence[Contribution]) -> Contribution:
    """One contribution for all uses of a weight, merged where forms allow it.

    Outer products of the same shape join as further positions of one sum, and
    look-ups as further entries, so that shared weights stay factored.
    """
    if len(parts) == 1:
        return parts[0]
    if all(type(part) is OuterProducts for part in parts):
        factors = [part.factors for part in parts]  # type: ignore[attr-defined]
        if len({left.shape[2] for left, _ in factors}) == 1:
            return OuterProducts(
                tf.concat([left for left, _ in factors], axis=1),
                tf.concat([right for _, right in factors], axis=1),
                parts[0].shape,
            )
    return Total(parts)
