"""Variance-gamma noise with lambda = 2."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.base import Noise

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class VarianceGamma(Noise):
    """Symmetric variance-gamma noise, lambda = 2: the sum of two Laplace draws.

    Its density is `(1 + |x| / scale) exp(-|x| / scale) / (4 scale)`, which is
    smooth at zero and has exponential tails.

    Args:
        scale: Scale of each of the two Laplace variables.

    Example:

    >>> VarianceGamma(scale=1.0).standard_deviation
    2.0
    """

    name = "variance-gamma"

    scale: float = 1.0

    def _standard_log_density(self, x: Any) -> np.ndarray:
        magnitude = np.abs(x)
        return np.log1p(magnitude) - magnitude - math.log(4)

    def _standard_cdf(self, x: Any) -> np.ndarray:
        # Far beyond the point where the exponential is 0 in float64.
        magnitude = np.minimum(np.abs(x), 1e4)
        tail = 0.25 * (2.0 + magnitude) * np.exp(-magnitude)
        return np.where(x < 0, tail, 1.0 - tail)

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        # (2 + x) exp(-(2 + x)) = 4 tail exp(-2), on the lower branch of Lambert W.
        return -special.lambertw(-4.0 * tail * math.exp(-2), k=-1).real - 2.0

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        words = uniform.random_words(shape, seed, 5)
        first = -tf.math.log(uniform.open_uniform(words[0], words[1]))
        second = -tf.math.log(uniform.open_uniform(words[2], words[3]))
        # |x| has density (1 + x) exp(-x) / 2: with equal odds an exponential or
        # the sum of two. Two bits of the last word are the odds and the sign.
        twice = tf.cast((words[4] // 2) & 1, first.dtype)
        return uniform.random_sign(words[4]) * (first + twice * second)

    @property
    def _standard_fisher_information(self) -> float:
        # E[(|x| / (1 + |x|))**2] = e E_1(1) / 2.
        return 0.5 * math.e * float(special.exp1(1.0))

    @property
    def _standard_deviation(self) -> float:
        return 2.0
