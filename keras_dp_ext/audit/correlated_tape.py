"""Correlated noise on a tape: how large it was, and whether it is its strategy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.noise import CorrelatedNoise, secure, uniform
from keras_dp_ext.noise.correlated.base import standard_normal

# What rounding in float32 leaves of a sum of a few draws.
_ROUNDING = 1e-3


def runs(steps: np.ndarray) -> list[np.ndarray]:
    """Places of the releases of each run; step 0 begins another one."""
    return np.split(np.arange(len(steps)), np.flatnonzero(steps[1:] == 0) + 1)


def independent_draws(seeds: np.ndarray, size: int) -> np.ndarray:
    """`[releases, size]` standard normals: what noise of these seeds is made of."""

    def normals() -> np.ndarray:
        draws = [standard_normal(size, tf.constant(seed)) for seed in seeds]
        return np.stack([draw.numpy() for draw in draws])

    if seeds.shape[1] != secure.REPEATABLE_SEED:
        return normals()
    with uniform.drawing_from(secure.repeatable_stream, secure.REPEATABLE_SEED):
        return normals()


def deviations(
    strategy: CorrelatedNoise, noise: np.ndarray, seeds: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """The scale of the noise of each release, `[releases]`, as it was drawn.

    The strategy makes noise of scale 1 from the independent draws, in NumPy; what was
    added must be a multiple of it.

    Args:
        strategy: The noise that is claimed.
        noise: `[releases, parameters]`, which was added.
        seeds: `[releases, words]`, of the independent draws.
        steps: `[releases]`, numbers of the releases in their run.

    Returns:
        NaN where the noise is none of this strategy.
    """
    draws = independent_draws(seeds, noise.shape[1])
    found = np.full(len(noise), np.nan)
    for places in runs(steps):
        unit = strategy.with_scale(1.0).noise_from(draws[places])
        for place, expected in zip(places, unit, strict=True):
            scale = float(noise[place] @ expected / (expected @ expected))
            rest = np.linalg.norm(noise[place] - scale * expected)
            if rest <= _ROUNDING * np.linalg.norm(noise[place]):
                found[place] = abs(scale)
    return found


def encoded_precision(moved: list[np.ndarray], steps: np.ndarray, event: Any) -> float:
    """The square of how far an example moves all runs, in units of their noise.

    Args:
        moved: How far each release moved, in units of the noise's scale.
        steps: Numbers of the releases in their run.
        event: The `CorrelatedRelease` that is claimed.
    """
    shifts = np.array(moved)
    return sum(
        float(np.sum(np.square(event.noise.encode(shifts[places]))))
        for places in runs(steps)
    )
