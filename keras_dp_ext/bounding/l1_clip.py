"""Clipping of every row to an L1 norm: what Laplace noise is made for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_positive
from keras_dp_ext.accounting.sensitivity import L1Sensitivity
from keras_dp_ext.bounding.base import Bound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.accounting.sensitivity import Sensitivity
    from keras_dp_ext.gradients import PerExampleGradients


@dataclasses.dataclass(frozen=True)
class L1Clip(Bound):
    """`g * min(1, C / |g|_1)`, with the L1 norm over all variables together.

    Per-example gradients are built in chunks.

    Args:
        l1_norm_clip: The greatest L1 norm `C` of a row.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.L1Clip(2.0).sensitivity(num_parameters=10)
    L1Sensitivity(norm=2.0)
    """

    l1_norm_clip: float = 1.0

    def __post_init__(self) -> None:
        check_positive("l1_norm_clip", self.l1_norm_clip)

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.gradients.base import WeightedRows

        def clip(rows: Any) -> Any:
            norm = tf.add_n(
                [
                    tf.reduce_sum(tf.abs(row), axis=list(range(1, row.shape.rank)))
                    for row in rows
                ]
            )
            return WeightedRows(rows, tf.minimum(1.0, self.l1_norm_clip / norm))

        return gradients.sum_of(clip, result_shapes=gradients.shapes)

    def sensitivity(self, num_parameters: int) -> Sensitivity:
        return L1Sensitivity(self.l1_norm_clip)
