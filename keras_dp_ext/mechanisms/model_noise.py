"""Draws the noise of a whole model at once: one call however many variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.made_once import made_once
from keras_dp_ext.gradients.rules.device import is_compiled_for_cpu
from keras_dp_ext.noise import Gaussian, Noise, NoiseSequence, uniform


def draw(
    noise: Noise, shapes: Sequence[Any], seed: tf.Tensor, factor: float | None = None
) -> list[tf.Tensor]:
    """Independent draws of `noise`, of the given static shapes.

    One flat draw is cut: many small variables cost as much as one large one.

    Args:
        noise: The density of every coordinate.
        shapes: The static shape of each tensor.
        seed: `int32[2]`.
        factor: What every coordinate is multiplied by.

    Returns:
        One float32 tensor for each shape.
    """
    count = total_size(shapes)
    if is_compiled_for_cpu():
        # The same numbers in one piece: XLA plans the memory by itself.
        whole = made_once(
            lambda: noise.sample([count], seed),
            [count],
            uniform.float_dtype(),
            seed,
        )
        pieces = [whole]
    else:
        pieces = noise.sample_pieces(count, seed)
    return cut(pieces if factor is None else [factor * one for one in pieces], shapes)


def draw_at(
    noise: Noise | NoiseSequence, shapes: Sequence[Any], seed: tf.Tensor, step: Any
) -> list[tf.Tensor]:
    """As `draw`, of the noise of release number `step`."""
    if isinstance(noise, NoiseSequence):
        return noise.select(step, lambda one: draw(one, shapes, seed))
    return draw(noise, shapes, seed)


def total_size(shapes: Sequence[Any]) -> int:
    """The number of coordinates of all of them."""
    return sum(math.prod(tuple(shape)) for shape in shapes)


def cut(
    vector: tf.Tensor | Sequence[tf.Tensor], shapes: Sequence[Any]
) -> list[tf.Tensor]:
    """One vector, which may come in pieces, as tensors of the given static shapes."""
    shapes = [tuple(shape) for shape in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    pieces = list(vector) if isinstance(vector, (list, tuple)) else [vector]
    whole = tf.split(pieces[0], sizes) if len(pieces) == 1 else _cut(pieces, sizes)
    return [tf.reshape(one, shape) for one, shape in zip(whole, shapes, strict=True)]


def _cut(pieces: Sequence[tf.Tensor], sizes: Sequence[int]) -> list[tf.Tensor]:
    """Vectors of these sizes from pieces that end anywhere."""
    parts: list[list[tf.Tensor]] = [[] for _ in sizes]
    missing, number = list(sizes), 0
    for piece in pieces:
        left, lengths, owners = piece.shape[0], [], []
        while left:
            if not missing[number]:
                number += 1
                continue
            lengths.append(min(left, missing[number]))
            owners.append(number)
            missing[number] -= lengths[-1]
            left -= lengths[-1]
        for owner, part in zip(owners, tf.split(piece, lengths), strict=True):
            parts[owner].append(part)
    assert not any(missing)
    return [
        part[0] if len(part) == 1 else tf.concat([*part, tf.zeros([0])], axis=0)
        for part in parts
    ]


def flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """The opposite of `cut`."""
    return tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)


def standard_normals(
    shapes: Sequence[Any], seed: tf.Tensor, factor: float | None = None
) -> list[tf.Tensor]:
    """Independent standard normals, times `factor`; see `draw`."""
    return draw(Gaussian(), shapes, seed, factor)
