"""The tanh filter as a bound: squashed coordinates, then an L2 clip."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from keras_dp_ext._checks import check_l2_norm_clip, check_positive
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.bounding.base import Bound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


@dataclasses.dataclass(frozen=True)
class TanhFilter(Bound):
    """`c * tanh(slope * g / k)` for every coordinate, then a clip of the row.

    Args:
        output_range: `c`, the filter's greatest output.
        active_range: `k`, the inputs beyond which the filter saturates.
        slope: Factor before the tangent's argument; 0.5 is the paper's Eq. 4.
        l2_norm_clip: L2 norm of a filtered row. `None` leaves rows as they are, as
            the paper does: their norm is then `c * sqrt(n)` for `n` parameters.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.TanhFilter(l2_norm_clip=None).sensitivity(num_parameters=100)
    L2Sensitivity(norm=10.0)

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021).
    """

    output_range: float = 1.0
    active_range: float = 1.0
    slope: float = 1.0
    l2_norm_clip: float | None = 1.0

    def __post_init__(self) -> None:
        for name in ("output_range", "active_range", "slope"):
            check_positive(name, getattr(self, name))
        if self.slope > 1e30 * self.active_range:
            raise ValueError(
                "Argument `active_range` must be at least 1e-30 times `slope`. "
                f"Received: active_range={self.active_range}, slope={self.slope}"
            )
        if self.l2_norm_clip is not None:
            check_l2_norm_clip("l2_norm_clip", self.l2_norm_clip)
            if self.output_range > 1e6 * self.l2_norm_clip:
                # Squares of filtered entries below 1e-19 underflow: what they hide
                # from the norm must stay far below the clip.
                raise ValueError(
                    "Argument `output_range` must be at most 1e6 times "
                    f"`l2_norm_clip`. Received: output_range={self.output_range}, "
                    f"l2_norm_clip={self.l2_norm_clip}"
                )

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        from keras_dp_ext.bounding.tanh_rows import tanh_rows
        from keras_dp_ext.bounding.tanh_sums import tanh_sums
        from keras_dp_ext.gradients.rules.device import runs_on_cpu

        rows = tanh_rows(
            self.output_range, self.active_range, self.slope, self.l2_norm_clip
        )
        if not runs_on_cpu():
            return gradients.sum_of(rows, result_shapes=gradients.shapes)
        factor = self.slope / self.active_range
        return gradients.sum_by(
            tanh_sums(rows, self.output_range, factor, self.l2_norm_clip)
        )

    def sensitivity(self, num_parameters: int) -> L2Sensitivity:
        if self.l2_norm_clip is not None:
            return L2Sensitivity(self.l2_norm_clip)
        return L2Sensitivity(self.output_range * math.sqrt(num_parameters))
