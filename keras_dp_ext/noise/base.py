"""What a noise is: a symmetric density, drawn independently for every coordinate."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_dp_ext._value import Value
from keras_dp_ext.noise.scaled import ScaledNoise

if TYPE_CHECKING:
    import tensorflow as tf


class Noise(ScaledNoise, Value, abc.ABC):
    """A symmetric, unimodal density around zero, in absolute units.

    The accountant reads `log_density` and `cdf` (NumPy, float64), the training
    step calls `sample` (TensorFlow, float32). Noises are immutable
    values: they compare, hash and serialise by their parameters.

    A subclass is a frozen dataclass with a field `scale`; it sets `name` and
    implements the abstract methods for `scale` 1. It is then known to
    `keras_dp_ext.noise.get` under its class name and its `name`.

    Attributes:
        scale: The factor that stretches the standard density. What it means for
            the spread is told by `standard_deviation`.
    """

    @abc.abstractmethod
    def _standard_log_density(self, x: np.ndarray) -> np.ndarray:
        """Natural logarithm of the density for `scale` 1."""

    @abc.abstractmethod
    def _standard_cdf(self, x: np.ndarray) -> np.ndarray:
        """Cumulative distribution function for `scale` 1, accurate for x < 0."""

    @abc.abstractmethod
    def _standard_upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        """The x with `P(X > x) = tail` for `scale` 1 and `tail` of at most 1/2."""

    @abc.abstractmethod
    def _standard_sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        """A draw for `scale` 1; see `sample`."""

    @property
    @abc.abstractmethod
    def _standard_fisher_information(self) -> float:
        """Fisher information of location for `scale` 1."""

    @property
    @abc.abstractmethod
    def _standard_deviation(self) -> float:
        """Standard deviation for `scale` 1."""

    def log_density(self, x: np.ndarray | float) -> np.ndarray:
        """Natural logarithm of the density at `x`, in float64."""
        standard = np.asarray(x, dtype=np.float64) / self.scale
        return self._standard_log_density(standard) - math.log(self.scale)

    def cdf(self, x: np.ndarray | float) -> np.ndarray:
        """Probability of a draw of at most `x`, in float64."""
        return self._standard_cdf(np.asarray(x, dtype=np.float64) / self.scale)

    def upper_quantile(self, tail: np.ndarray | float) -> np.ndarray:
        """The x with `P(X > x) = tail`, accurate for the smallest tails.

        Args:
            tail: Probabilities in (0, 1/2]; the other half follows by symmetry.
        """
        return self.scale * self._standard_upper_quantile(np.asarray(tail, np.float64))

    @property
    def fisher_information(self) -> float:
        """Fisher information of location: the curvature of the privacy loss.

        For small shifts every smooth noise costs as much as a Gaussian of
        standard deviation `fisher_information ** -0.5`.
        """
        return self._standard_fisher_information / self.scale**2

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate; infinite where there is none."""
        return self._standard_deviation * self.scale

    def sample(self, shape: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
        """Draws one float32 tensor, as a pure function of `seed`.

        Works in eager mode, in graphs and under XLA, with the same numbers in
        all three up to rounding.

        Args:
            shape: Static or dynamic shape of the draw.
            seed: `int32[2]`; a seed that repeats repeats the noise.

        Returns:
            A float32 tensor of the given shape.
        """
        standard = self._standard_sample(shape, seed)
        # A product with 1 would be one more copy of a draw as large as the model.
        return standard if self.scale == 1.0 else self.scale * standard

    def sample_pieces(self, count: int, seed: tf.Tensor) -> list[tf.Tensor]:
        """`sample([count], seed)`, cut into vectors that are drawn one after the other.

        Args:
            count: How many coordinates.
            seed: `int32[2]`.
        """
        return [self.sample([count], seed)]
