"""Composed mechanisms that take a clip and a noise multiplier, as DP-SGD does."""

from __future__ import annotations

from typing import Any

from keras_dp_ext._checks import check_positive
from keras_dp_ext.bounding import Bound
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.mechanisms.composed import Composed
from keras_dp_ext.noise import CorrelatedNoise, Noise


class ByMultiplier(Composed):
    """Base class: a bound, and noise of `noise_multiplier` times its L2 norm.

    Args:
        l2_norm_clip: The L2 norm to which `bound` limits a row.
        noise_multiplier: Scale of the noise, in units of `l2_norm_clip`.
        bound: What limits a row.
        noise: The noise, of any scale.
    """

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float,
        bound: Bound,
        noise: Noise | CorrelatedNoise,
    ):
        check_positive("noise_multiplier", noise_multiplier)
        self.l2_norm_clip = l2_norm_clip
        super().__init__(bound, noise.with_scale(noise_multiplier * l2_norm_clip))

    def get_config(self) -> dict[str, Any]:
        return Mechanism.get_config(self)

    @classmethod
    def arguments_at(cls, noise_multiplier: float, **arguments: Any) -> dict[str, Any]:
        return {**arguments, "noise_multiplier": noise_multiplier}
