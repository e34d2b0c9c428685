"""Laplace noise."""

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
class Laplace(Noise):
    """Two-sided exponential noise with density `exp(-|x| / scale) / (2 scale)`.

    Args:
        scale: Mean of `|x|`.

    Example:

    >>> Laplace(scale=1.0).standard_deviation == 2**0.5
    True
    """

    name = "laplace"

    scale: float = 1.0

    def _standard_log_density(self, x: Any) -> np.ndarray:
        return -np.abs(x) - math.log(2)

    def _standard_cdf(self, x: Any) -> np.ndarray:
        tail = 0.5 * np.exp(-np.abs(x))
        return np.where(x < 0, tail, 1.0 - tail)

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        return -np.log(2.0 * tail)

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        high, low, sign = uniform.random_words(shape, seed, 3)
        return -uniform.random_sign(sign) * tf.math.log(uniform.open_uniform(high, low))

    @property
    def _standard_fisher_information(self) -> float:
        return 1.0

    @property
    def _standard_deviation(self) -> float:
        return math.sqrt(2)
