"""Small gradients side by side: one op for all biases and gains of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.contributions import Contribution, Rows

# A variable with more elements has ops of its own, and is not copied.
_MOST_ELEMENTS = 4096


class PackedContributions:
    """The contributions of a model, of which small ones are packed into one matrix.

    A deep model has hundreds of small variables. An op takes longer to trace, to
    optimize and to start than to run on any of them.

    Args:
        contributions: One for each variable, or `None` without influence.

    Attributes:
        contributions: Large ones as they were, then the matrix, if there is one.
    """

    def __init__(self, contributions: Sequence[Contribution | None]):
        self._shapes = [None if one is None else one.shape for one in contributions]
        small = [n for n, one in enumerate(contributions) if _is_small(one)]
        self._small = small if len(small) > 1 else []
        self._large = [
            number
            for number, one in enumerate(contributions)
            if one is not None and number not in self._small
        ]
        self.contributions = [contributions[number] for number in self._large]
        if self._small:
            rows = [
                _flat(contributions[number].rows(), self._shapes[number])
                for number in self._small
            ]
            self.contributions.append(Rows(tf.concat(rows, axis=1), [sum(self._sizes)]))

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(self._shapes[number]) for number in self._small]

    def pack(self, scales: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
        """A scale for each of `contributions`, from one for each variable."""
        packed = [scales[number] for number in self._large]
        if not self._small:
            return packed
        small = [scales[number] for number in self._small]
        if all(scale is None for scale in small):
            return [*packed, None]
        flat = [
            tf.ones([size]) if scale is None else tf.reshape(scale, [size])
            for scale, size in zip(small, self._sizes, strict=True)
        ]
        return [*packed, tf.concat(flat, axis=0)]

    def unpack(
        self, values: Sequence[tf.Tensor], is_rows: bool = False
    ) -> list[tf.Tensor | None]:
        """A value for each variable, from one for each of `contributions`.

        Args:
            values: Sums, or `[rows, ...]`.
            is_rows: Whether there is an axis of rows before the variable's own.
        """
        result: list[tf.Tensor | None] = [None] * len(self._shapes)
        for number, value in zip(self._large, values, strict=False):
            result[number] = value
        if self._small:
            pieces = _columns(values[-1], self._sizes, is_rows)
            for number, piece in zip(self._small, pieces, strict=True):
                shape = self._shapes[number]
                if len(shape) != 1:
                    piece = tf.reshape(piece, [-1, *shape] if is_rows else shape)
                result[number] = piece
        return result


def _columns(value: tf.Tensor, sizes: list[int], is_rows: bool) -> list[tf.Tensor]:
    if not is_rows:
        return tf.split(value, sizes)
    # XLA cannot split where the number of rows is not known.
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [
        tf.slice(value, [0, start], [-1, size])
        for start, size in zip(starts, sizes, strict=True)
    ]


def _is_small(contribution: Contribution | None) -> bool:
    # Rows without elements could not be told apart in a matrix.
    return (
        contribution is not None
        and contribution.has_rows
        and 0 < math.prod(contribution.shape) <= _MOST_ELEMENTS
    )


def _flat(rows: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    return rows if len(shape) == 1 else tf.reshape(rows, [-1, math.prod(shape)])
