"""Learns the axes of the clipping ellipsoid from what has been released already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.mechanisms import model_noise

_TINY = 1e-30


class DirectionalScales:
    """Axes `s_i ~ (v_i / |w_i|)**exponent`, estimated from noised sums only.

    Each release shows coordinate `i` of the sum as `G_i` under noise of a known
    standard deviation `n s_i`. In units of that noise, `z = G_i / (n s_i)`, moving
    averages keep

    - the mean of `z**2`, of which noise explains exactly 1: the rest, times the
      squared noise unit, is the second moment `v_i`;
    - the mean of `z`, which times the noise unit is the gradient `w_i`.

    Under noise alone the two averages have the standard errors `sqrt(2 r)` and
    `sqrt(r)`, `r = (1 - smoothing) / (1 + smoothing)`: less than that is not
    evidence, so that is where both are floored. A coordinate of which nothing is
    seen thereby gets quieter until something is seen, and where nothing is seen
    anywhere all axes stay 1, as in DP-SGD. The averages start at what noise alone
    would give, so they need no correction for their start.

    The axes are normalised as in `analysis.ellipsoid_scales`, to
    `sum_i v_i / s_i**2 = sum_i v_i`, and confined to `[1 / max_ratio, max_ratio]`.

    Args:
        exponent: 1/3 for directional noise, 1/4 for AdaClip.
        weights: `"gradient"` to estimate `w`, or one public tensor (or number)
            for each variable.
        noise_unit: `n`, standard deviation of the noise where `s_i = 1`.
        smoothing: Decay of the moving averages.
        max_ratio: Largest axis, and inverse of the smallest.
    """

    def __init__(
        self,
        exponent: float,
        weights: str | Sequence[Any],
        noise_unit: float,
        smoothing: float,
        max_ratio: float,
    ):
        self._exponent = exponent
        self._weights = weights
        self._noise_unit = noise_unit
        self._smoothing = smoothing
        self.max_ratio = max_ratio

    @property
    def _learns_weights(self) -> bool:
        return isinstance(self._weights, str)

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        """Creates the axes and the moving averages, of all variables side by side."""
        self._shapes = [tuple(variable.shape) for variable in variables]

        def slot(name: str, initializer: str = "ones") -> Any:
            return add_variable(
                shape=(model_noise.total_size(self._shapes),),
                dtype="float32",
                name=name,
                initializer=initializer,
            )

        self._scales = slot("scale")
        self._square = slot("mean_square")
        self._precision = slot("mean_inverse_square_scale")
        if self._learns_weights:
            self._mean = slot("mean", "zeros")
            self._inverse = slot("mean_inverse_scale")

    def flat(self) -> tf.Tensor:
        """The axes for the coming release, as one vector."""
        return tf.convert_to_tensor(self._scales)

    def current(self) -> list[tf.Tensor]:
        """The axes for the coming release, for each variable."""
        return model_noise.cut(self.flat(), self._shapes)

    def update(
        self, noised: Sequence[tf.Tensor], measured: tf.Tensor | None = None
    ) -> None:
        """Takes in one release.

        Args:
            noised: The noised sums.
            measured: Which coordinates were released, a boolean vector; by default
                all.
        """
        scale = self.flat()
        standard = model_noise.flat(noised) / (self._noise_unit * scale)
        square = self._average(self._square, tf.square(standard), measured)
        precision = self._average(
            self._precision, tf.math.reciprocal(tf.square(scale)), measured
        )
        # |z| is at most a number of rows over the multiplier, s within
        # max_ratio: nothing here can overflow.
        moments = tf.maximum(square - 1.0, self._square_error) / precision
        if self._learns_weights:
            mean = self._average(self._mean, standard, measured)
            inverse = self._average(self._inverse, tf.math.reciprocal(scale), measured)
            weights = tf.maximum(tf.abs(mean), self._mean_error) / inverse
        else:
            weights = tf.abs(self._public_weights())
        self._scales.assign(self._solve(moments, weights))

    def _public_weights(self) -> tf.Tensor:
        """The given weights: a number where all are the same, or a vector."""
        weights = [np.asarray(weight, np.float32) for weight in self._weights]
        numbers = {float(weight) if weight.ndim == 0 else None for weight in weights}
        if len(numbers) == 1 and None not in numbers:
            return tf.constant(numbers.pop(), tf.float32)
        return model_noise.flat(
            [
                tf.broadcast_to(weight, shape)
                for weight, shape in zip(weights, self._shapes, strict=True)
            ]
        )

    @property
    def _mean_error(self) -> float:
        return math.sqrt((1 - self._smoothing) / (1 + self._smoothing))

    @property
    def _square_error(self) -> float:
        return math.sqrt(2) * self._mean_error

    def _average(
        self, variable: Any, value: tf.Tensor, seen: tf.Tensor | None
    ) -> tf.Tensor:
        """One step of a moving average; what was not seen stays as it was."""
        old = tf.convert_to_tensor(variable)
        new = old + (1 - self._smoothing) * (value - old)
        if seen is not None:
            new = tf.where(seen, new, old)
        variable.assign(new)
        return new

    def _solve(self, moments: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Eq. 11 with `Delta_i**2 = v_i`, normalised and confined."""
        # A power, by way of the logarithm: four times faster than `tf.pow`.
        raw = tf.exp(self._exponent * tf.math.log(moments / tf.maximum(weights, _TINY)))
        scaled_norm = tf.reduce_sum(moments / tf.square(raw))
        factor = tf.sqrt(scaled_norm / tf.reduce_sum(moments))
        axes = tf.clip_by_value(factor * raw, 1 / self.max_ratio, self.max_ratio)
        # Not a number can only come from a release that was not one; the bound
        # must stay one even then.
        return tf.where(tf.math.is_finite(axes), axes, 1.0)
