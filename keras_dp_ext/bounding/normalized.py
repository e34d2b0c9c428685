"""Automatic clipping: every row gets nearly the same norm, without a threshold."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_dp_ext._checks import check_l2_norm_clip, check_positive
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.bounding.base import Bound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.accounting.sensitivity import Sensitivity
    from keras_dp_ext.gradients import PerExampleGradients


@dataclasses.dataclass(frozen=True)
class Normalized(Bound):
    """`C * g / (|g| + stability)`: a direction, and a little of the length.

    There is no clip to tune: `C` only scales the learning rate. Rows that are much
    shorter than `stability` keep their relative lengths.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row.
        stability: What is added to the norm, the paper's gamma.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.Normalized().sensitivity(num_parameters=10)
    L2Sensitivity(norm=1.0)

    References:
        Bu, Wang, Zha, Karypis, "Automatic Clipping: Differentially Private Deep
        Learning Made Easier and Stronger" (2022), AUTO-S.
    """

    l2_norm_clip: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_positive("l2_norm_clip", self.l2_norm_clip)
        check_l2_norm_clip("stability", self.stability)

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        norm = tf.sqrt(gradients.norm_squared())
        # The rest of the factor comes behind the sum: see `weighted_sum`.
        sums = gradients.weighted_sum(self.stability / (norm + self.stability))
        return [self.l2_norm_clip / self.stability * value for value in sums]

    def sensitivity(self, num_parameters: int) -> Sensitivity:
        return L2Sensitivity(self.l2_norm_clip)
