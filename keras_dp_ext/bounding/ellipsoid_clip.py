"""Clipping to an ellipsoid: weights of different sizes get noise of different sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_l2_norm_clip, check_positive
from keras_dp_ext.accounting.sensitivity import L2Sensitivity
from keras_dp_ext.bounding.base import AdaptiveBound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


@dataclasses.dataclass(frozen=True)
class EllipsoidClip(AdaptiveBound):
    """`g * min(1, C / |g / s|)`, where `s` has one public axis for each weight.

    Measured in units of the axes, a row has an L2 norm of at most `C`. Noise is added in
    these units, and what was noised is multiplied by the axes: a weight with a short axis
    gets little noise, one with a long axis much, at the epsilon of `L2Clip(C)` with the
    same noise. Its memory is empty.

    Args:
        axes: For each weight, in the order of `model.trainable_variables`, how large its
            gradients are expected to be. They must not be computed from the data.
        l2_norm_clip: The greatest norm `C` of a row, in units of the axes.

    Example:

    >>> from keras_dp_ext import bounding
    >>> clip = bounding.EllipsoidClip(axes=(1.0, 0.1), l2_norm_clip=2.0)
    >>> clip.sensitivity(num_parameters=10)
    L2Sensitivity(norm=2.0)

    References:
        Xiang, Yang, Wang, "Differentially-Private Deep Learning from an Optimization
        Perspective" (2019), whose directional noise has such a shape.
    """

    axes: tuple[float, ...]
    l2_norm_clip: float = 1.0

    def __post_init__(self) -> None:
        check_l2_norm_clip("l2_norm_clip", self.l2_norm_clip)
        object.__setattr__(self, "axes", tuple(self.axes))
        for axis in self.axes:
            check_positive("axes", axis)

    def sensitivity(self, num_parameters: int) -> L2Sensitivity:
        return L2Sensitivity(self.l2_norm_clip)

    def make_memory(self, add_variable: Callable[..., Any]) -> list[Any]:
        return []

    def sum_at(
        self, gradients: PerExampleGradients, memory: Sequence[Any]
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.bounding.ellipsoid import ellipsoid_clip

        if len(self.axes) != len(gradients.shapes):
            raise ValueError(
                "Argument `axes` must have one entry for each of the "
                f"{len(gradients.shapes)} trainable weights. Received: axes={self.axes}"
            )
        scales = [
            tf.fill(shape, tf.constant(axis, tf.float32))
            for shape, axis in zip(gradients.shapes, self.axes, strict=True)
        ]
        sums = ellipsoid_clip(gradients, self.l2_norm_clip, scales)
        return [value / axis for value, axis in zip(sums, self.axes, strict=True)]

    def follow(
        self, noised: list[tf.Tensor], memory: Sequence[Any], expected_rows: float
    ) -> list[tf.Tensor]:
        return [value * axis for value, axis in zip(noised, self.axes, strict=True)]
