"""Clipping of every row to an L2 norm: the bound of DP-SGD."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_dp_ext._checks import check_l2_norm_clip
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.bounding.base import Bound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.accounting.sensitivity import Sensitivity
    from keras_dp_ext.gradients import PerExampleGradients


@dataclasses.dataclass(frozen=True)
class L2Clip(Bound):
    """`g * min(1, C / |g|)`, with `|.|` over all variables together.

    Uses norms and a weighted sum only: no per-example gradient is built where the
    engine knows a cheaper way.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.L2Clip(1.5).sensitivity(num_parameters=10)
    L2Sensitivity(norm=1.5)

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016), Algorithm 1.
    """

    l2_norm_clip: float = 1.0

    def __post_init__(self) -> None:
        check_l2_norm_clip("l2_norm_clip", self.l2_norm_clip)

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        norm = tf.sqrt(gradients.norm_squared())
        # A row of norm 0 keeps its zeros: C / 0 is infinite, the minimum is 1.
        return gradients.weighted_sum(tf.minimum(1.0, self.l2_norm_clip / norm))

    def sensitivity(self, num_parameters: int) -> Sensitivity:
        return L2Sensitivity(self.l2_norm_clip)
