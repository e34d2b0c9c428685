"""Strategies whose inverse is banded: the past is drawn again, not kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import signal

from keras_dp_ext._checks import check_count
from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.correlated import toeplitz
from keras_dp_ext.noise.correlated.base import (
    CorrelatedNoise,
    add_seeds,
    set_row,
    standard_normal,
)

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class BandedInverse(CorrelatedNoise):
    """Noise that is a weighted sum of the last `bands` independent draws.

    The weights are the first coefficients of (1 - x)^(1/2). Past draws are made again
    from their seeds, so that memory does not grow with the bands: it costs `bands` draws
    a release, and 8 bytes each. The strategy C is the inverse, and not banded: no
    amplification is proven. Train on `dp.data.fixed_order_batches`.

    Args:
        bands: How many draws are added up.
        scale: Standard deviation of the draws.

    Example:

    >>> BandedInverse(bands=3).noise_from(np.eye(4)[:, 0])
    array([ 1.   , -0.5  , -0.125,  0.   ])

    References:

    - Kalinin, McMahan, Upadhyay, Lampert (2025), "Back to Square Roots: An Optimal Bound
      on the Matrix Factorization Error for Multi-Epoch Differentially Private SGD",
      2505.12128.
    """

    name = "banded-inverse"

    bands: int = 16
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("bands", self.bands)

    @property
    def weights(self) -> np.ndarray:
        """The weights of the draws, the latest first."""
        return toeplitz.series_inverse(toeplitz.square_root(self.bands), self.bands)

    def encode(self, x: np.ndarray) -> np.ndarray:
        # 1 / c(x) = 1 - (positive terms whose sum is below 1): C has no negative entry.
        return signal.lfilter([1.0], self.weights, x, axis=0)

    def noise_from(self, z: np.ndarray) -> np.ndarray:
        return signal.lfilter(self.weights, [1.0], z, axis=0)

    def make_memory(self, size: int, add_variable: Callable[..., Any]) -> list[Any]:
        return [add_seeds(self.bands, "past_seeds", add_variable)]

    def draw(
        self, size: int, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> tf.Tensor:
        import tensorflow as tf

        weights = tf.constant(self.weights, uniform.float_dtype())
        seeds = tf.convert_to_tensor(memory[0])
        last = tf.cast(tf.minimum(step, self.bands - 1), tf.int32)

        def add(ago: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            row = tf.cast((step - tf.cast(ago, tf.int64)) % self.bands, tf.int32)
            return ago + 1, total + weights[ago] * standard_normal(size, seeds[row])

        total = weights[0] * standard_normal(size, seed)
        _, total = tf.while_loop(
            lambda ago, total: ago <= last,
            add,
            (tf.constant(1), total),
            maximum_iterations=self.bands - 1,
        )
        return self.scale * total

    def remember(
        self, drawn: tf.Tensor, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> None:
        set_row(memory[0], step % self.bands, seed)
