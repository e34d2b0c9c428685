"""Draws the noise of a whole model at once: one call however many variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.made_once import made_once
from keras_dp_ext.noise import Gaussian, Noise, NoiseSequence, uniform


def draw(
    noise: Noise, shapes: Sequence[Any], seed: tf.Tensor, factor: float | None = None
) -> list[tf.Tensor]:
    """Independent draws of `noise`, of the given static shapes.

    One flat draw is cut into pieces: many small variables cost as much as one
    large one.

    Args:
        noise: The density of every coordinate.
        shapes: The static shape of each tensor.
        seed: `int32[2]`.
        factor: What every coordinate is multiplied by.

    Returns:
        One float32 tensor for each shape.
    """
    shape = [total_size(shapes)]

    def values() -> tf.Tensor:
        flat = noise.sample(shape, seed)
        return flat if factor is None else factor * flat

    return cut(made_once(values, shape, uniform.float_dtype(), seed), shapes)


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


def cut(flat: tf.Tensor, shapes: Sequence[Any]) -> list[tf.Tensor]:
    """One vector as tensors of the given static shapes."""
    shapes = [tuple(shape) for shape in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    return [
        tf.reshape(piece, shape)
        for piece, shape in zip(tf.split(flat, sizes), shapes, strict=True)
    ]


def flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """The opposite of `cut`."""
    return tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)


def standard_normals(
    shapes: Sequence[Any], seed: tf.Tensor, factor: float | None = None
) -> list[tf.Tensor]:
    """Independent standard normals, times `factor`; see `draw`."""
    return draw(Gaussian(), shapes, seed, factor)
