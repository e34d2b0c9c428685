"""Learns the axes of the clipping ellipsoid from what has been released already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.mechanisms.slots import slot_maker

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
        """Creates the axes and the moving averages."""
        slots = slot_maker(variables, add_variable)
        self._scales = slots("scale", "ones")
        self._square = slots("mean_square", "ones")
        self._precision = slots("mean_inverse_square_scale", "ones")
        if self._learns_weights:
            self._mean = slots("mean")
            self._inverse = slots("mean_inverse_scale", "ones")

    def current(self) -> list[tf.Tensor]:
        """The axes for the coming release."""
        return [tf.convert_to_tensor(scale) for scale in self._scales]

    def update(
        self, noised: Sequence[tf.Tensor], measured: Sequence[tf.Tensor] | None = None
    ) -> None:
        """Takes in one release.

        Args:
            noised: The noised sums.
            measured: For each variable a boolean tensor, which coordinates were
                released; by default all.
        """
        moments, weights = [], []
        for index, total in enumerate(noised):
            scale = tf.convert_to_tensor(self._scales[index])
            standard = total / (self._noise_unit * scale)
            seen = None if measured is None else measured[index]

            square = self._average(self._square[index], tf.square(standard), seen)
            precision = self._average(
                self._precision[index], tf.math.reciprocal(tf.square(scale)), seen
            )
            # |z| is at most a number of rows over the multiplier, s within
            # max_ratio: nothing here can overflow.
            moments.append(tf.maximum(square - 1.0, self._square_error) / precision)
            if self._learns_weights:
                mean = self._average(self._mean[index], standard, seen)
                inverse = self._average(
                    self._inverse[index], tf.math.reciprocal(scale), seen
                )
                weights.append(tf.maximum(tf.abs(mean), self._mean_error) / inverse)
            else:
                weights.append(tf.abs(tf.cast(self._weights[index], tf.float32)))
        for variable, scale in zip(
            self._scales, self._solve(moments, weights), strict=True
        ):
            variable.assign(scale)

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

    def _solve(
        self, moments: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Eq. 11 with `Delta_i**2 = v_i`, normalised and confined."""
        raw = [
            # A power, by way of the logarithm: four times faster than `tf.pow`.
            tf.exp(self._exponent * tf.math.log(moment / tf.maximum(weight, _TINY)))
            for moment, weight in zip(moments, weights, strict=True)
        ]
        scaled_norm = tf.add_n(
            [
                tf.reduce_sum(moment / tf.square(axis))
                for moment, axis in zip(moments, raw, strict=True)
            ]
        )
        norm = tf.add_n([tf.reduce_sum(moment) for moment in moments])
        factor = tf.sqrt(scaled_norm / norm)
        axes = [
            tf.clip_by_value(factor * axis, 1 / self.max_ratio, self.max_ratio)
            for axis in raw
        ]
        # Not a number can only come from a release that was not one; the bound
        # must stay one even then.
        return [tf.where(tf.math.is_finite(axis), axis, 1.0) for axis in axes]
