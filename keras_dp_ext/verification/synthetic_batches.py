"""Made-up batches: what the probe feeds to a model in place of data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

# Likely to be in the vocabulary of a model of English.
_WORDS = np.array(b"the a of and to is in it this not good bad".split())
_MOST_WORDS = 20


class SyntheticBatches:
    """Values for everything through which data enters a graph.

    Args:
        sources: The tensors through which data enters, a row for each example.
        batch: Number of examples.
        group: Examples per microbatch.
        generator: Of the random values.
        positive: Draws floats from (0.1, 0.9) instead of the normal distribution.
    """

    def __init__(
        self,
        sources: Sequence[tf.Tensor],
        batch: int,
        group: int,
        generator: np.random.Generator,
        positive: bool,
    ):
        self._sources = list(sources)
        self._batch = batch
        self._group = group
        self._generator = generator
        self._positive = positive

    def draw(self, scale: float = 1.0) -> list[tf.Tensor]:
        """A batch; floats are multiplied by `scale`."""
        return [self._values(source, scale) for source in self._sources]

    def _values(self, source: tf.Tensor, scale: float) -> tf.Tensor:
        generator, shape = self._generator, self._shape(source)
        if source.dtype == tf.string:
            return _sentences(generator, shape, 1, _MOST_WORDS)
        if source.dtype == tf.bool:
            values = generator.integers(0, 2, shape).astype(bool)
        elif not source.dtype.is_floating and not source.dtype.is_complex:
            # Small enough to be a valid token or class of any model.
            values = generator.integers(0, 2, shape)
        elif self._positive:
            values = scale * generator.uniform(0.1, 0.9, shape)
        else:
            values = scale * generator.normal(size=shape)
        return tf.constant(values, source.dtype)

    def _shape(self, source: tf.Tensor) -> list[int]:
        return [
            (self._batch if axis == 0 else 3) if size is None else size
            for axis, size in enumerate(source.shape)
        ]

    def with_others(
        self, data: Sequence[tf.Tensor], others: Sequence[tf.Tensor], kept: np.ndarray
    ) -> list[tf.Tensor]:
        """The examples of the `kept` microbatches, all others replaced.

        Two draws of 0 and 1 are often the same: integers and truth values become
        their opposite instead.
        """
        return [
            self._mix(value, _opposite(value, other), kept)
            for value, other in zip(data, others, strict=True)
        ]

    def _mix(self, values: tf.Tensor, others: tf.Tensor, kept: np.ndarray) -> tf.Tensor:
        mask = np.repeat(kept, self._group)
        mask = mask.reshape(-1, *[1] * (values.shape.rank - 1))
        return tf.where(mask, values, others)

    def extremes(
        self, data: Sequence[tf.Tensor], kept: np.ndarray
    ) -> Iterator[tuple[list[tf.Tensor], list[tf.Tensor]]]:
        """Pairs between which a minimum or maximum over the others moves.

        Random tokens of 0 and 1 leave the extremes of a batch what they are, and so
        do random sentences their greatest length. One input at a time: what is a
        valid token may be no valid class.
        """
        for number, source in enumerate(self._sources):
            if source.dtype == tf.string:
                base = _sentences(self._generator, self._shape(source), 2, 3)
                moved = [
                    _sentences(self._generator, self._shape(source), size, size)
                    for size in (1, _MOST_WORDS)
                ]
            elif source.dtype.is_integer:
                base = tf.ones_like(data[number])
                moved = [tf.zeros_like(base), 3 * base]
            else:
                continue
            for others in moved:
                old, new = list(data), list(data)
                old[number] = base
                new[number] = self._mix(base, others, kept)
                yield old, new


def _opposite(value: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    if value.dtype.is_integer:
        return 1 - value
    return tf.logical_not(value) if value.dtype == tf.bool else other


def _sentences(generator, shape, fewest: int, most: int) -> tf.Tensor:
    count = math.prod(shape)
    lengths = generator.integers(fewest, most + 1, count)
    sentences = [b" ".join(generator.choice(_WORDS, length)) for length in lengths]
    return tf.reshape(tf.constant(sentences, tf.string), shape)


def separating_subsets(rows: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Masks `[rows]`: for every two rows one that keeps the first, not the second.

    By the binary digits of the rows' numbers, and their complements: about
    `2 log2(rows)` masks for all pairs. Rows are numbered at random.
    """
    numbers = generator.permutation(rows)
    digits = [
        (numbers >> position) % 2 == 1 for position in range((rows - 1).bit_length())
    ]
    return [mask for digit in digits for mask in (digit, ~digit)]
