"""Clipping layer by layer, or group by group: each has a part of the bound for itself."""

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
class PerLayerClip(Bound):
    """`g_l * min(1, C_l / |g_l|)` for each layer l, with `sum C_l**2 = C**2`.

    A layer with long gradients no longer shortens those of all others. What one row
    adds has an L2 norm of at most `C`, as with `L2Clip(C)`, so that the same noise
    gives the same epsilon.

    Args:
        l2_norm_clip: The greatest L2 norm `C` of a row, over all layers.
        layer_sizes: How many weights (kernel, bias, ...) each layer has, in the order
            of `model.trainable_variables`: `(2, 2)` for two Dense layers. By default
            each weight is a layer of its own.
        shares: The `C_l` relative to each other; by default all the same. They must
            not be computed from the data.
        groups: In place of `layer_sizes`, for weights that belong together wherever
            they are: the number of its group for each weight, counted from 0.
            `(0, 1, 0, 1)` clips the kernels of two Dense layers together, and their biases.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.PerLayerClip(2.0, layer_sizes=(2, 2)).sensitivity(num_parameters=10)
    L2Sensitivity(norm=2.0)

    References:
        McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent
        Language Models" (2018), per-layer clipping.
    """

    l2_norm_clip: float = 1.0
    layer_sizes: tuple[int, ...] | None = None
    shares: tuple[float, ...] | None = None
    groups: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_l2_norm_clip("l2_norm_clip", self.l2_norm_clip)
        for name in ("layer_sizes", "shares", "groups"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, tuple(values))
                for value in values if name != "groups" else ():
                    check_positive(name, value)
        if self.groups is None:
            return
        if self.layer_sizes is not None:
            raise ValueError("Pass `layer_sizes` or `groups`, not both.")
        if sorted(set(self.groups)) != list(range(len(set(self.groups)))):
            raise ValueError(
                "Argument `groups` must number groups from 0 on, without a gap. "
                f"Received: groups={self.groups}"
            )

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        squares = gradients.norms_squared()
        groups = self._group_of_each(len(squares))
        count = len(set(groups))
        shares = self.shares or (1.0,) * count
        if len(groups) != len(squares) or len(shares) != count:
            raise ValueError(
                "Arguments `layer_sizes` or `groups`, and `shares`, must describe the "
                f"model, which has {len(squares)} weights. Received: {self}"
            )
        unit = self.l2_norm_clip / math.hypot(*shares)
        norms = [
            tf.sqrt(
                tf.add_n([s for s, g in zip(squares, groups, strict=True) if g == n])
            )
            for n in range(count)
        ]
        factors = [
            tf.minimum(1.0, share * unit / norm)
            for share, norm in zip(shares, norms, strict=True)
        ]
        return gradients.weighted_sum([factors[group] for group in groups])

    def _group_of_each(self, num_weights: int) -> list[int]:
        """The number of its layer, or group, for each weight."""
        if self.groups is not None:
            return list(self.groups)
        sizes = self.layer_sizes or (1,) * num_weights
        return [number for number, size in enumerate(sizes) for _ in range(size)]

    def sensitivity(self, num_parameters: int) -> L2Sensitivity:
        return L2Sensitivity(self.l2_norm_clip)
