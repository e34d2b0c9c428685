"""DP-SGD: clip every row, add Gaussian noise to the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_clip_and_noise
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import gaussian_release
from keras_dp_ext.bounding.l2_clip import L2Clip
from keras_dp_ext.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class DPSGD(Mechanism):
    """Clips each row to `l2_norm_clip` and adds `N(0, (sigma * C)^2)`.

    Args:
        l2_norm_clip: Largest L2 norm `C` of one microbatch's gradient.
        noise_multiplier: Standard deviation of the noise, in units of `C`.

    Example:

    >>> DPSGD(l2_norm_clip=0.5, noise_multiplier=1.1).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        Abadi et al., "Deep Learning with Differential Privacy" (2016),
        Algorithm 1.
    """

    name = "dpsgd"

    def __init__(self, l2_norm_clip: float = 1.0, noise_multiplier: float = 1.1):
        check_clip_and_noise(l2_norm_clip, noise_multiplier)
        self.l2_norm_clip = l2_norm_clip
        self.noise_multiplier = noise_multiplier

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        return L2Clip(self.l2_norm_clip).sum(gradients)

    def noise_deviation(self) -> float:
        return self.noise_multiplier * self.l2_norm_clip

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        from keras_dp_ext.mechanisms.model_noise import standard_normals

        del step
        return standard_normals(shapes, seed, self.noise_deviation())

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        del num_parameters
        return Claim(
            gaussian_release(self.noise_multiplier, 1.0, examples_per_microbatch),
            published_conversion="classic",
        )
