"""DP-SGD whose clip follows a quantile of the gradients' norms, privately."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_clip_and_noise, check_in, check_positive
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import gaussian_release
from keras_dp_ext.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients

# Far beyond all sensible clips, and within what float32 squares without overflow.
_LEAST, _GREATEST = 1e-15, 1e15


class Quantile(Mechanism):
    """Clips to `C`, which moves towards a quantile of the norms of the rows.

    With each sum a lot also releases a count: each row adds 1/2 if its norm is at most
    `C`, and -1/2 if it was clipped. The count has noise of its own, and the next clip
    is `C * exp(-rate * (fraction - quantile))`.

    **What it costs.** Measured in units of its noise, a row adds to both a vector of
    squared length `1 / s**2 + (1/2)**2 / b**2`, where `s` is the noise multiplier of the
    sum and `b` the standard deviation of the count's noise. That is one Gaussian release
    of multiplier `z = (s**-2 + (2 b)**-2) ** -0.5`, whatever `C` is, since it follows
    from earlier releases. `z` is what you pass; `s` is a little more.

    Args:
        l2_norm_clip: The first clip.
        noise_multiplier: `z`: what both releases together are accounted as.
        target_quantile: The share of rows that are not to be clipped.
        clip_learning_rate: How fast the clip moves.
        count_noise: Standard deviation of the noise on the count, in units of
            `noise_multiplier`; above 1/2.

    Example:

    >>> mechanism = Quantile(noise_multiplier=1.1, count_noise=10.0)
    >>> mechanism.claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)
    >>> round(mechanism.sum_noise_multiplier, 4)
    1.1014

    References:
        Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with
        Adaptive Clipping" (2021), Algorithm 1 and Theorem 1.
    """

    name = "quantile"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        target_quantile: float = 0.5,
        clip_learning_rate: float = 0.2,
        count_noise: float = 10.0,
    ):
        check_clip_and_noise(l2_norm_clip, noise_multiplier)
        check_in("target_quantile", target_quantile, "[0, 1]")
        check_positive("clip_learning_rate", clip_learning_rate)
        check_positive("count_noise", count_noise)
        if count_noise <= 0.5:
            raise ValueError(
                "Argument `count_noise` must be above 0.5: with less, the count alone "
                f"costs more than `noise_multiplier`. Received: count_noise={count_noise}"
            )
        self.l2_norm_clip = l2_norm_clip
        self.noise_multiplier = noise_multiplier
        self.target_quantile = target_quantile
        self.clip_learning_rate = clip_learning_rate
        self.count_noise = count_noise

    @property
    def sum_noise_multiplier(self) -> float:
        """`s`: the noise of the sum over the clip, with which the count is paid for."""
        return self.noise_multiplier / math.sqrt(1.0 - 0.25 / self.count_noise**2)

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        # Its logarithm relative to the first clip: zeros are the state at the start.
        self.log_clip = add_variable(shape=(), dtype="float32", name="log_clip")

    def statistics(self) -> list[tuple[int, ...]]:
        return [()]

    def _clip(self) -> tf.Tensor:
        import tensorflow as tf

        return self.l2_norm_clip * tf.exp(tf.convert_to_tensor(self.log_clip))

    @property
    def current_clip(self) -> float:
        """The clip of the next release. It follows from released figures alone."""
        return self.l2_norm_clip * math.exp(float(self.log_clip.numpy()))

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        clip, norm = self._clip(), tf.sqrt(gradients.norm_squared())
        sums = gradients.weighted_sum(tf.minimum(1.0, clip / norm))
        # A row of zeros is padding, or may as well be: it counts neither way.
        vote = tf.where(norm <= clip, 0.5, -0.5)
        return [*sums, tf.reduce_sum(tf.where(norm > 0, vote, 0.0))]

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.mechanisms.model_noise import standard_normals

        del step
        *normals, of_count = standard_normals(shapes, seed)
        deviation = tf.cast(self.sum_noise_multiplier * self._clip(), of_count.dtype)
        noise = [deviation * normal for normal in normals]
        return [*noise, self.count_noise * self.noise_multiplier * of_count]

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        import tensorflow as tf

        del step
        *sums, count = noised
        share = tf.cast(count, tf.float32) / self.expected_rows + 0.5
        share = tf.clip_by_value(share, 0.0, 1.0)
        moved = self.log_clip - self.clip_learning_rate * (share - self.target_quantile)
        low, high = (math.log(end / self.l2_norm_clip) for end in (_LEAST, _GREATEST))
        self.log_clip.assign(tf.clip_by_value(moved, low, high))
        return sums

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        del num_parameters
        # Where a row changes instead of joining, both parts move twice as far.
        return Claim(
            gaussian_release(self.noise_multiplier, 1.0, examples_per_microbatch),
            published_conversion="tight",
        )
