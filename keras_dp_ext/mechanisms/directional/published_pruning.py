"""Pruning with error feedback exactly as printed: it releases private data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.base import PerExampleGradients
from keras_dp_ext.mechanisms.slots import slot_maker


class PublishedPruning:
    """Keeps the largest coordinates of the sum; what is cut off goes into the next one.

    The error of the last release is added to every example's gradient (between lines 8
    and 9 of Algorithm 1) before it is clipped. The sum is pruned by magnitude, and what
    is left gets noise; the rest is zero. *Which* coordinates are left is thereby released
    without noise, and so is what the error makes of later supports: epsilon is infinite.
    A sum over several batches is pruned batch by batch.

    Args:
        ratio: Share of the coordinates that is pruned.

    References:
        Xiang et al. (2021), section 6.1.
    """

    def __init__(self, ratio: float):
        self._ratio = ratio

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        """Creates the error and the support, which no file may hold: they are data."""
        slots = slot_maker(variables, add_variable)
        self._error = slots("pruning_error", saved=False)
        self._support = slots("pruning_support", saved=False)

    def bound(
        self, gradients: PerExampleGradients, l2_norm_clip: float
    ) -> list[tf.Tensor]:
        """The pruned sum of clipped gradients, each with the error added."""
        errors = [tf.convert_to_tensor(error) for error in self._error]

        def clipped(rows: list[tf.Tensor]) -> list[tf.Tensor]:
            # A row of zeros is padding: nothing is fed back through it.
            present = _norm(rows) > 0
            moved = [row + error for row, error in zip(rows, errors, strict=True)]
            norm = _norm(moved)
            kept = present & tf.math.is_finite(norm)
            factor = tf.where(kept, tf.minimum(1.0, l2_norm_clip / norm), 0.0)
            return [
                tf.where(_spread(kept, row), _spread(factor, row) * row, 0.0)
                for row in moved
            ]

        totals = gradients.sum_of(clipped)
        count = tf.reduce_sum(tf.cast(gradients.norm_squared() > 0, tf.float32))
        threshold = _quantile(totals, self._ratio)
        pruned = []
        for index, total in enumerate(totals):
            support = tf.cast(tf.abs(total) > threshold, tf.float32)
            pruned.append(support * total)
            self._error[index].assign((total - pruned[-1]) / tf.maximum(count, 1.0))
            before = tf.convert_to_tensor(self._support[index])
            self._support[index].assign(tf.maximum(before, support))
        return pruned

    def refine(self, noised: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Takes the noise off where nothing was left, and begins with a new support."""
        left = []
        for support, value in zip(self._support, noised, strict=True):
            left.append(tf.convert_to_tensor(support) * value)
            support.assign(tf.zeros_like(value))
        return left


def _norm(rows: Sequence[tf.Tensor]) -> tf.Tensor:
    squares = [
        tf.reduce_sum(tf.square(row), axis=list(range(1, row.shape.rank)))
        for row in rows
    ]
    return tf.sqrt(tf.add_n(squares))


def _spread(values: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [-1] + [1] * (row.shape.rank - 1))


def _quantile(totals: Sequence[tf.Tensor], ratio: float) -> tf.Tensor:
    flat = tf.concat([tf.reshape(tf.abs(total), [-1]) for total in totals], axis=0)
    size = flat.shape[0]
    pruned = min(size - 1, int(ratio * size))
    return tf.sort(flat)[pruned - 1] if pruned else tf.constant(-1.0)
