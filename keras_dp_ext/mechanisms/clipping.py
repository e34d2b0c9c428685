"""DP-SGD with another bound than one clip of the whole row, by the names they have."""

from __future__ import annotations

from keras_dp_ext.bounding import Normalized, PerLayerClip
from keras_dp_ext.mechanisms.by_multiplier import ByMultiplier
from keras_dp_ext.noise import Gaussian


class PerLayer(ByMultiplier):
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
        super().__init__(l2_norm_clip, noise_multiplier, bound, Gaussian())
        self.layer_sizes = bound.layer_sizes
        self.shares = bound.shares
        self.groups = bound.groups


class Automatic(ByMultiplier):
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
        super().__init__(l2_norm_clip, noise_multiplier, bound, Gaussian())
        self.stability = stability
