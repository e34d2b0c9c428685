"""Cauchy noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.base import Noise

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Cauchy(Noise):
    """Cauchy noise: half of the draws exceed `scale` in magnitude, no variance.

    Args:
        scale: Median of `|x|`.

    Example:

    >>> float(Cauchy(scale=3.0).cdf(3.0))
    0.75
    """

    name = "cauchy"

    scale: float = 1.0

    def _standard_log_density(self, x: Any) -> np.ndarray:
        magnitude = np.maximum(np.abs(x), 1e-300)
        return -np.logaddexp(0.0, 2.0 * np.log(magnitude)) - math.log(math.pi)

    def _standard_cdf(self, x: Any) -> np.ndarray:
        # arctan2 keeps the relative accuracy of the lower tail.
        return np.arctan2(1.0, -x) / math.pi

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        return 1.0 / np.tan(math.pi * tail)

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        high, low, sign = uniform.random_words(shape, seed, 3)
        # The cotangent has its pole at 0, where the uniform is finest.
        angle = 0.5 * math.pi * uniform.open_uniform(high, low)
        return uniform.random_sign(sign) / tf.tan(angle)

    @property
    def _standard_fisher_information(self) -> float:
        return 0.5

    @property
    def _standard_deviation(self) -> float:
        return math.inf
