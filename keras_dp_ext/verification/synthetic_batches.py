"""Made-up batches: what the probe feeds to a model in place of data."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Likely to be in the vocabulary of a model of English.
_WORDS = tuple(b"the a of and to is in it this not good bad".split())
_MOST_WORDS = 20

# Small enough to be valid tokens or classes of any model, and classes from 1.
_FROM_0 = (0, 1, 3)
_FROM_1 = (1, 2, 4)

# Of an axis whose length the graph does not tell: too small for a deep stack of
# convolutions, or too long for a table of positions, so several are tried.
_LENGTHS = (3, 8, 16, 32, 64, 128, 224)


@dataclasses.dataclass(frozen=True)
class Domain:
    """Which values a model may accept.

    Attributes:
        length: Of every axis, but the first, that is not known.
        positive: Draws floats from (0.1, 0.9) instead of the normal distribution.
        integers: Two and a third one above them, for each source: tokens, classes.
        words: Of which texts consist.
        most_words: In one text.
    """

    length: int = 3
    positive: bool = False
    integers: tuple[tuple[int, int, int], ...] = ()
    words: tuple[bytes, ...] = _WORDS
    most_words: int = _MOST_WORDS


def domains(
    sources: Sequence[tf.Tensor],
    vocabulary: Sequence[bytes] = (),
    numbers: Mapping[int, Sequence[int]] | None = None,
) -> Iterator[Domain]:
    """From what almost every model accepts to what few need.

    Args:
        sources: The tensors through which data enters.
        vocabulary: Words that tables of the model know.
        numbers: By the number of a source, the integers that its table knows.
    """
    sources = list(sources)
    unknown = any(None in source.shape[1:].as_list() for source in sources)
    lengths = _LENGTHS if unknown else _LENGTHS[:1]
    texts = [(_WORDS, _MOST_WORDS)]
    if vocabulary and any(source.dtype == tf.string for source in sources):
        known = tuple(vocabulary)
        texts += [(known, _MOST_WORDS), (known, 1)]
    for integers, (words, most), length, positive in itertools.product(
        _integers(sources, numbers or {}), texts, lengths, (False, True)
    ):
        yield Domain(length, positive, integers, words, most)


def _integers(
    sources: Sequence[tf.Tensor], numbers: Mapping[int, Sequence[int]]
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Classes from 0, those of one input or of all from 1; then what tables know."""
    for known in [{}, numbers] if numbers else [{}]:
        first = [_FROM_0] * len(sources)
        for number, entries in known.items():
            low, *others = sorted(entries)[:3]
            first[number] = (low, others[0], others[-1])
        counted = [
            number
            for number, source in enumerate(sources)
            if source.dtype.is_integer and number not in known
        ]
        choices = [[], *([number] for number in counted)]
        if len(counted) > 1:
            choices.append(counted)
        for chosen in choices:
            yield tuple(
                _FROM_1 if number in chosen else entries
                for number, entries in enumerate(first)
            )


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
        self._integers = domain.integers or (_FROM_0,) * len(self._sources)

    @property
    def have_floats(self) -> bool:
        return any(source.dtype.is_floating for source in self._sources)

    def draw(self, scale: float = 1.0) -> list[tf.Tensor]:
        """A batch; floats are multiplied by `scale`, which may be NaN or infinite."""
        return [
            self._values(source, scale, integers)
            for source, integers in zip(self._sources, self._integers, strict=True)
        ]

    def _values(self, source: tf.Tensor, scale: float, integers: Any) -> tf.Tensor:
        generator, shape = self._generator, self._shape(source)
        if source.dtype == tf.string:
            return self._sentences(shape, 1, self._domain.most_words)
        if source.dtype == tf.bool:
            values = generator.integers(0, 2, shape).astype(bool)
        elif not source.dtype.is_floating and not source.dtype.is_complex:
            values = generator.choice(integers[:2], shape)
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
            self._mix(value, _opposite(value, other, integers), kept)
            for value, other, integers in zip(data, others, self._integers, strict=True)
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
        for number, (source, (low, middle, high)) in enumerate(
            zip(self._sources, self._integers, strict=True)
        ):
            if source.dtype == tf.string:
                shape, most = self._shape(source), self._domain.most_words
                base = self._sentences(shape, min(2, most), min(3, most))
                moved = [self._sentences(shape, size, size) for size in (1, most)]
            elif source.dtype.is_integer:
                ones = tf.ones_like(data[number])
                base, *moved = (ones * entry for entry in (middle, low, high))
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


def _opposite(value: tf.Tensor, other: tf.Tensor, integers: Any) -> tf.Tensor:
    if value.dtype.is_integer:
        return integers[0] + integers[1] - value
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
