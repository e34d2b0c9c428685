"""Made-up batches: what the probe feeds to a model in place of data."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Likely to be in the vocabulary of a model of English.
_WORDS = tuple(b"the a of and to is in it this not good bad".split())
_MOST_WORDS = 20

# Of an axis whose length the graph does not tell: too small for a deep stack of
# convolutions, or too long for a table of positions, so several are tried.
_LENGTHS = (3, 8, 16, 32, 64, 128, 224)


@dataclasses.dataclass(frozen=True)
class Domain:
    """Which values a model may accept.

    Attributes:
        length: Of every axis, but the first, that is not known.
        positive: Draws floats from (0.1, 0.9) instead of the normal distribution.
        least: The least integer, for each source: tokens, classes.
        words: Of which texts consist.
        most_words: In one text.
    """

    length: int = 3
    positive: bool = False
    least: tuple[int, ...] = ()
    words: tuple[bytes, ...] = _WORDS
    most_words: int = _MOST_WORDS


def domains(
    sources: Sequence[tf.Tensor], vocabulary: Sequence[bytes] = ()
) -> Iterator[Domain]:
    """From what almost every model accepts to what few need.

    Args:
        sources: The tensors through which data enters.
        vocabulary: Words that tables of the model know.
    """
    sources = list(sources)
    unknown = any(None in source.shape[1:].as_list() for source in sources)
    lengths = _LENGTHS if unknown else _LENGTHS[:1]
    texts = [(_WORDS, _MOST_WORDS)]
    if vocabulary and any(source.dtype == tf.string for source in sources):
        known = tuple(vocabulary)
        texts += [(known, _MOST_WORDS), (known, 1)]
    integers = [n for n, source in enumerate(sources) if source.dtype.is_integer]
    zeros = (0,) * len(sources)
    # Classes that are counted from 1, in one input or in all of them.
    leasts = [zeros, *(_one_at([n], zeros) for n in integers)]
    if len(integers) > 1:
        leasts.append(_one_at(integers, zeros))
    for least, (words, most), length, positive in itertools.product(
        leasts, texts, lengths, (False, True)
    ):
        yield Domain(length, positive, least, words, most)


def _one_at(numbers: Sequence[int], zeros: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if n in numbers else zero for n, zero in enumerate(zeros))


class SyntheticBatches:
    """Values for everything through which data enters a graph.

    Args:
        sources: The tensors through which data enters, a row for each example.
        batch: Number of examples.
        group: Examples per microbatch.
        generator: Of the random values.
        domain: Which values to draw.
    """

    def __init__(
        self,
        sources: Sequence[tf.Tensor],
        batch: int,
        group: int,
        generator: np.random.Generator,
        domain: Domain,
    ):
        self._sources = list(sources)
        self._batch = batch
        self._group = group
        self._generator = generator
        self._domain = domain
        self._least = domain.least or (0,) * len(self._sources)

    @property
    def have_floats(self) -> bool:
        return any(source.dtype.is_floating for source in self._sources)

    def draw(self, scale: float = 1.0) -> list[tf.Tensor]:
        """A batch; floats are multiplied by `scale`, which may be NaN or infinite."""
        return [
            self._values(source, scale, least)
            for source, least in zip(self._sources, self._least, strict=True)
        ]

    def _values(self, source: tf.Tensor, scale: float, least: int) -> tf.Tensor:
        generator, shape = self._generator, self._shape(source)
        if source.dtype == tf.string:
            return self._sentences(shape, 1, self._domain.most_words)
        if source.dtype == tf.bool:
            values = generator.integers(0, 2, shape).astype(bool)
        elif not source.dtype.is_floating and not source.dtype.is_complex:
            # Small enough to be a valid token or class of any model.
            values = least + generator.integers(0, 2, shape)
        elif self._domain.positive:
            values = scale * generator.uniform(0.1, 0.9, shape)
        else:
            values = scale * generator.normal(size=shape)
        return tf.constant(values, source.dtype)

    def _shape(self, source: tf.Tensor) -> list[int]:
        return [
            (self._batch if axis == 0 else self._domain.length)
            if size is None
            else size
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
            self._mix(value, _opposite(value, other, least), kept)
            for value, other, least in zip(data, others, self._least, strict=True)
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
        for number, (source, least) in enumerate(
            zip(self._sources, self._least, strict=True)
        ):
            if source.dtype == tf.string:
                shape, most = self._shape(source), self._domain.most_words
                base = self._sentences(shape, min(2, most), min(3, most))
                moved = [self._sentences(shape, size, size) for size in (1, most)]
            elif source.dtype.is_integer:
                base = (least + 1) * tf.ones_like(data[number])
                moved = [base - 1, base + 2]
            else:
                continue
            for others in moved:
                old, new = list(data), list(data)
                old[number] = base
                new[number] = self._mix(base, others, kept)
                yield old, new

    def _sentences(self, shape: Any, fewest: int, most: int) -> tf.Tensor:
        generator, words = self._generator, np.array(self._domain.words, object)
        lengths = generator.integers(fewest, most + 1, math.prod(shape))
        sentences = [b" ".join(generator.choice(words, length)) for length in lengths]
        return tf.reshape(tf.constant(sentences, tf.string), shape)


def _opposite(value: tf.Tensor, other: tf.Tensor, least: int) -> tf.Tensor:
    if value.dtype.is_integer:
        return 2 * least + 1 - value
    return tf.logical_not(value) if value.dtype == tf.bool else other


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
