"""Student-t noise, the paper's choice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from keras_dp_ext._checks import check_positive
from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.base import Noise

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class StudentT(Noise):
    """Non-standardised Student-t noise: `scale` times a t variable.

    Args:
        df: Degrees of freedom, at least 1.
        scale: Factor of the standard t variable.

    Example:

    >>> StudentT(df=9, scale=1.0).fisher_information == 10 / 12
    True

    References:

    - Nasr, Shokri, Houmansadr (2020), section 5: df 9.
    - Bailey (1994), "Polar generation of random variates with the
      t-distribution", Mathematics of Computation 62.
    """

    name = "student-t"

    df: float = 9.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("df", self.df)
        if self.df < 1:
            raise ValueError(
                f"Argument `df` must be at least 1. Received: df={self.df}"
            )
        object.__setattr__(self, "df", float(self.df))
        super().__post_init__()

    def _standard_log_density(self, x: Any) -> np.ndarray:
        normaliser = special.betaln(0.5, 0.5 * self.df) + 0.5 * math.log(self.df)
        # Avoids overflow of x**2 for |x| above 1e154.
        log_term = np.logaddexp(
            0.0, 2.0 * np.log(np.maximum(np.abs(x), 1e-300)) - math.log(self.df)
        )
        return -0.5 * (self.df + 1) * log_term - normaliser

    def _standard_cdf(self, x: Any) -> np.ndarray:
        return special.stdtr(self.df, x)

    def _standard_upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        return -special.stdtrit(self.df, tail)

    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        high, low, turn = uniform.random_words(shape, seed, 3)
        exponential = -tf.math.log(uniform.open_uniform(high, low)) / self.df
        # Bailey: sqrt(df (U**(-2/df) - 1)) cos(2 pi V), in a form that neither
        # overflows for df = 1 nor cancels for U near 1.
        radius = tf.exp(exponential) * tf.sqrt(-tf.math.expm1(-2.0 * exponential))
        angle = 2 * math.pi * uniform.angle_uniform(turn)
        return math.sqrt(self.df) * radius * tf.cos(angle)

    @property
    def _standard_fisher_information(self) -> float:
        return (self.df + 1) / (self.df + 3)

    @property
    def _standard_deviation(self) -> float:
        return math.sqrt(self.df / (self.df - 2)) if self.df > 2 else math.inf
