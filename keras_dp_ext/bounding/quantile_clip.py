"""A clip that follows a quantile of the rows' norms, for any noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_in, check_l2_norm_clip, check_positive
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.bounding.base import AdaptiveBound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients

# Far beyond all sensible clips, and within what float32 squares without overflow.
_LEAST, _GREATEST = 1e-15, 1e15


@dataclasses.dataclass(frozen=True)
class QuantileClip(AdaptiveBound):
    """Clips to `C`, which moves towards a quantile of the norms of the rows.

    A row adds `g / C * min(1, C / |g|)`, and as one coordinate more its vote:
    `w / 2` if it was not clipped, `-w / 2` if it was. So it is a vector of norm
    `sqrt(1 + w**2 / 4)` at most, whatever `C` is, and any noise that is analysed for a bound
    of an L2 norm fits: the count is a part of the release, and paid for. What was noised
    is multiplied by `C`, and the next `C` is `C * exp(-rate * (fraction - quantile))`:
    both follow from releases alone.

    The noise is therefore in units of the clip: `Gaussian(s)` has a noise multiplier of
    `s / sqrt(1 + w**2 / 4)`, and the count a standard deviation of `s / w`.

    Args:
        l2_norm_clip: The first clip.
        target_quantile: The share of rows that are not to be clipped.
        clip_learning_rate: How fast the clip moves.
        count_weight: `w`.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.QuantileClip(count_weight=0.1).sensitivity(num_parameters=10)
    L2Sensitivity(norm=1.00124...)

    References:
        Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with
        Adaptive Clipping" (2021), Algorithm 1 and Theorem 1, with one noise for both.
    """

    l2_norm_clip: float = 1.0
    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    count_weight: float = 0.1

    def __post_init__(self) -> None:
        check_l2_norm_clip("l2_norm_clip", self.l2_norm_clip)
        check_in("target_quantile", self.target_quantile, "[0, 1]")
        check_positive("clip_learning_rate", self.clip_learning_rate)
        check_positive("count_weight", self.count_weight)

    def sensitivity(self, num_parameters: int) -> L2Sensitivity:
        return L2Sensitivity(math.hypot(1.0, self.count_weight / 2))

    def statistics(self) -> list[tuple[int, ...]]:
        return [()]

    def make_memory(self, add_variable: Callable[..., Any]) -> list[Any]:
        # The clip's logarithm, relative to the first one: 0 at the start.
        return [add_variable(shape=(), dtype="float32", name="log_clip")]

    def clip(self, memory: Sequence[Any]) -> tf.Tensor:
        """The clip of the next release. It follows from released figures alone."""
        import tensorflow as tf

        return self.l2_norm_clip * tf.exp(tf.convert_to_tensor(memory[0]))

    def sum_at(
        self, gradients: PerExampleGradients, memory: Sequence[Any]
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        clip, norm = self.clip(memory), tf.sqrt(gradients.norm_squared())
        sums = gradients.weighted_sum(tf.minimum(1.0, clip / norm))
        sums = [value / clip for value in sums]
        # A row of zeros is padding, or may as well be: it counts neither way.
        vote = tf.where(norm <= clip, 0.5, -0.5)
        votes = tf.reduce_sum(tf.where(norm > 0, vote, 0.0))
        return [*sums, self.count_weight * votes]

    def follow(
        self, noised: list[tf.Tensor], memory: Sequence[Any], expected_rows: float
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        *sums, count = noised
        clip = self.clip(memory)
        share = tf.cast(count, tf.float32) / self.count_weight / expected_rows + 0.5
        share = tf.clip_by_value(share, 0.0, 1.0)
        moved = memory[0] - self.clip_learning_rate * (share - self.target_quantile)
        low, high = (math.log(end / self.l2_norm_clip) for end in (_LEAST, _GREATEST))
        memory[0].assign(tf.clip_by_value(moved, low, high))
        return [tf.cast(clip, value.dtype) * value for value in sums]
