"""Hyperbolic secant noise."""

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
class HyperbolicSecant(Noise):
    """Noise with density `sech(x / scale) / (pi scale)`, as in `scipy.stats`.

    Args:
        scale: The standard deviation is `scale * pi / 2`.

    Example:

    >>> HyperbolicSecant(scale=1.0).fisher_information
    0.5
    """

    name = "sech"

    scale: float = 1.0

    def _standard_log_density(self, x: Any) -> np.ndarray:
        magnitude = np.abs(x)
        return math.log(2 / math.pi) - magnitude - np.log1p(np.exp(-2.0 * magnitude))

    def _standard_cdf(self, x: Any) -> np.ndarray:
        tail = 2.0 / math.pi * np.arctan(np.exp(-np.abs(x)))
        return np.where(x < 0, tail, 1.0 - tail)

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        return -np.log(np.tan(0.5 * math.pi * tail))

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        high, low, sign = uniform.random_words(shape, seed, 3)
        # P(|X| > x) = 4/pi arctan(exp(-x)), inverted.
        tangent = tf.tan(0.25 * math.pi * uniform.open_uniform(high, low))
        return -uniform.random_sign(sign) * tf.math.log(tangent)

    @property
    def _standard_fisher_information(self) -> float:
        return 0.5

    @property
    def _standard_deviation(self) -> float:
        return 0.5 * math.pi
