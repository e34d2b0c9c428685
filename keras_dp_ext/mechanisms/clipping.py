"""DP-SGD with another bound than one clip of the whole row, by the names they have."""

from __future__ import annotations

from typing import Any

from keras_dp_ext._checks import check_positive
from keras_dp_ext.bounding import Bound, Normalized, PerLayerClip
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.mechanisms.composed import Composed
from keras_dp_ext.noise import Gaussian


class _Clipped(Composed):
    """A bound of L2 norm `l2_norm_clip` under Gaussian noise."""

    def __init__(self, l2_norm_clip: float, noise_multiplier: float, bound: Bound):
        check_positive("noise_multiplier", noise_multiplier)
        self.l2_norm_clip = l2_norm_clip
        super().__init__(bound, Gaussian(noise_multiplier * l2_norm_clip))

    def get_config(self) -> dict[str, Any]:
        return Mechanism.get_config(self)

    @classmethod
    def arguments_at(cls, noise_multiplier: float, **arguments: Any) -> dict[str, Any]:
        return {**arguments, "noise_multiplier": noise_multiplier}


class PerLayer(_Clipped):
    """Clips each layer's gradient by itself; see `dp.bounding.PerLayerClip`.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row, over all layers.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        layer_sizes: How many weights each layer has; by default each weight is a
            layer of its own.
        shares: The clips of the layers relative to each other; by default all the same.
        groups: In place of `layer_sizes`, the number of its group for each weight.

    Example:

    >>> PerLayer(l2_norm_clip=0.5, noise_multiplier=1.1).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent
        Language Models" (2018).
    """

    name = "per-layer"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        layer_sizes: tuple[int, ...] | None = None,
        shares: tuple[float, ...] | None = None,
        groups: tuple[int, ...] | None = None,
    ):
        bound = PerLayerClip(l2_norm_clip, layer_sizes, shares, groups)
        super().__init__(l2_norm_clip, noise_multiplier, bound)
        self.layer_sizes = bound.layer_sizes
        self.shares = bound.shares
        self.groups = bound.groups


class Automatic(_Clipped):
    """Gives every row nearly the same norm, AUTO-S; see `dp.bounding.Normalized`.

    Args:
        l2_norm_clip: The norm `C`, which only scales the learning rate.
        noise_multiplier: Standard deviation of the noise, in units of `C`.
        stability: What is added to the norm of a row.

    Example:

    >>> Automatic(l2_norm_clip=0.5, noise_multiplier=1.1).claim(num_parameters=100).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        Bu, Wang, Zha, Karypis, "Automatic Clipping: Differentially Private Deep
        Learning Made Easier and Stronger" (2022).
    """

    name = "automatic"

    def __init__(
        self,
        l2_norm_clip: float = 1.0,
        noise_multiplier: float = 1.1,
        stability: float = 0.01,
    ):
        bound = Normalized(l2_norm_clip, stability)
        super().__init__(l2_norm_clip, noise_multiplier, bound)
        self.stability = stability
