"""Variables side by side: few matrices for a map that treats all coordinates alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf


class JoinedRows:
    """Neighbours among tensors, joined until there are few.

    What a map costs to trace and to compile grows with the number of tensors that it
    is given, far more than with their size.

    Args:
        shapes: Of one row of each tensor.
        most: How many matrices there may be.

    Attributes:
        sizes: Of one row of each matrix.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], most: int):
        self._shapes = [tuple(shape) for shape in shapes]
        sizes = [math.prod(shape) for shape in self._shapes]
        self._members: list[list[int]] = []
        if len(sizes) <= most:
            self._members = [[number] for number in range(len(sizes))]
        else:
            # A matrix ends where its share of all coordinates does.
            done, matrix = 0, -1
            for number, size in enumerate(sizes):
                here = min(most - 1, most * done // max(1, sum(sizes)))
                if here > matrix:
                    self._members.append([])
                    matrix = here
                self._members[-1].append(number)
                done += size
        self.sizes = [sum(sizes[n] for n in members) for members in self._members]

    def join(self, rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """`[rows, size]` for each matrix, from one `[rows, *shape]` for each tensor."""
        flat = [
            row if len(shape) == 1 else _flat(row, math.prod(shape))
            for row, shape in zip(rows, self._shapes, strict=True)
        ]
        return [
            flat[members[0]]
            if len(members) == 1
            else tf.concat([flat[number] for number in members], axis=1)
            for members in self._members
        ]

    def split(self, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """One sum of each tensor's shape, from one `[size]` for each matrix."""
        pieces: list[tf.Tensor] = []
        for total, members in zip(sums, self._members, strict=True):
            sizes = [math.prod(self._shapes[number]) for number in members]
            pieces += [total] if len(members) == 1 else tf.split(total, sizes)
        return [
            piece if len(shape) == 1 else tf.reshape(piece, shape)
            for piece, shape in zip(pieces, self._shapes, strict=True)
        ]


def _flat(row: tf.Tensor, size: int) -> tf.Tensor:
    # Nothing tells how often an axis of no elements is there.
    return tf.reshape(row, [-1 if size else tf.shape(row)[0], size])
