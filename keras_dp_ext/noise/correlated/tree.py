"""Tree aggregation: DP-FTRL's noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dp_ext._checks import check_count
from keras_dp_ext.noise.correlated.base import (
    CorrelatedNoise,
    add_seeds,
    set_row,
    standard_normal,
)

# Trees of this many levels hold more releases than anybody makes.
_LEVELS = 40

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class TreeAggregation(CorrelatedNoise):
    """Noise of binary tree aggregation (DP-FTRL).

    Sums of releases are noised by the nodes of a binary tree: the sum of the first n has
    as many draws as n has binary ones. Release m, counted from 1, completes the node that
    covers the last 2^k releases, where 2^k is the greatest power of two that divides m.
    Its noise is that of the new node without those that it replaces.

    Past draws are made again from their seeds, one a release on the average: memory does
    not grow. Train on `dp.data.fixed_order_batches`; or on arrays or
    `dp.data.shuffled_batches` with a tree for each pass over the data (`restart_every`).

    Args:
        scale: Standard deviation of the noise of a node.
        restart_every: A new tree begins after this many releases. `None`: never.

    Example:

    >>> TreeAggregation().matrix(4)
    array([[1., 0., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 1., 0.],
           [1., 1., 1., 1.]])

    References:

    - Kairouz, McMahan, Song, Thakkar, Thakurta, Xu (2021), "Practical and Private (Deep)
      Learning without Sampling or Shuffling", Algorithm 1 and Appendix B.
    - Dwork, Naor, Pitassi, Rothblum (2010); Chan, Shi, Song (2011).
    """

    name = "tree"
    is_toeplitz = False

    scale: float = 1.0
    restart_every: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restart_every is not None:
            check_count("restart_every", self.restart_every)

    def _places(self, steps: int) -> np.ndarray:
        """The number of each release in its tree, from 1."""
        return np.arange(steps) % (self.restart_every or steps or 1) + 1

    def encode(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, np.float64)
        places = self._places(len(x))
        sums = np.concatenate([np.zeros_like(x[:1]), np.cumsum(x, axis=0)])
        ends = np.arange(1, len(x) + 1)
        return sums[ends] - sums[ends - (places & -places)]

    def noise_from(self, z: np.ndarray) -> np.ndarray:
        noise = np.array(z, np.float64)
        places = self._places(len(noise))
        for level in range(len(noise).bit_length()):
            rows = np.flatnonzero((places & -places) > 2**level)
            noise[rows] -= np.asarray(z)[rows - 2**level]
        return noise

    def make_memory(self, size: int, add_variable: Callable[..., Any]) -> list[Any]:
        return [add_seeds(_LEVELS, "node_seeds", add_variable)]

    def draw(
        self, size: int, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> tf.Tensor:
        import tensorflow as tf

        seeds = tf.convert_to_tensor(memory[0])

        def remove(level: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return level + 1, total - standard_normal(size, seeds[level])

        _, total = tf.while_loop(
            lambda level, total: level < self._level(step),
            remove,
            (tf.constant(0), standard_normal(size, seed)),
        )
        return self.scale * total

    def remember(
        self, drawn: tf.Tensor, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> None:
        set_row(memory[0], self._level(step), seed)

    def _level(self, step: tf.Tensor) -> tf.Tensor:
        """The level of the node that this release completes; it replaces all below it."""
        import tensorflow as tf

        place = step if self.restart_every is None else step % self.restart_every
        powers = tf.constant(2, tf.int64) ** tf.range(1, _LEVELS, dtype=tf.int64)
        divides = tf.equal((place + 1) % powers, 0)
        return tf.reduce_sum(tf.cast(divides, tf.int32))
