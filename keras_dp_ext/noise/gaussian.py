"""Gaussian noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from keras_dp_ext.noise import box_muller, uniform
from keras_dp_ext.noise.base import Noise

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Gaussian(Noise):
    """Normal noise; `scale` is its standard deviation.

    Drawn by the Box-Muller transform from 64-bit uniforms, because the tail of
    `tf.random.stateless_normal` ends between 5 and 6 standard deviations (see
    `uniform.open_uniform`); this one ends beyond 9.

    Args:
        scale: Standard deviation.

    Example:

    >>> float(Gaussian(scale=2.0).cdf(0.0))
    0.5
    """

    name = "gaussian"

    scale: float = 1.0

    def _standard_log_density(self, x: Any) -> np.ndarray:
        return -0.5 * np.square(x) - 0.5 * math.log(2 * math.pi)

    def _standard_cdf(self, x: Any) -> np.ndarray:
        return special.ndtr(x)

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        return -special.ndtri(tail)

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        # Each point in the plane gives two normals, its cosine and its sine.
        count = tf.reduce_prod(shape) if tf.is_tensor(shape) else math.prod(shape)
        pairs = (count + 1) // 2
        if uniform.float_dtype() == tf.float32:
            flat = box_muller.normals(pairs, seed)
        else:
            words = uniform.random_words([pairs], seed, 3)
            flat = tf.reshape(tf.stack(box_muller.points(*words)), [-1])
        return tf.reshape(flat[:count], shape)

    def sample_pieces(self, count: int, seed: tf.Tensor) -> list[tf.Tensor]:
        import tensorflow as tf

        # A subclass may draw other numbers than these.
        is_plain = type(self) is Gaussian and uniform.float_dtype() == tf.float32
        if not is_plain or count <= box_muller.most_in_a_piece():
            return super().sample_pieces(count, seed)
        pieces = box_muller.normals_in_pieces(count, seed)
        return pieces if self.scale == 1.0 else [self.scale * one for one in pieces]

    @property
    def _standard_fisher_information(self) -> float:
        return 1.0

    @property
    def _standard_deviation(self) -> float:
        return 1.0
