"""Clipping layer by layer: each has a part of the bound for itself."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from keras_dp_ext._checks import check_positive
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

    def __post_init__(self) -> None:
        check_positive("l2_norm_clip", self.l2_norm_clip)
        for name in ("layer_sizes", "shares"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, tuple(values))
                for value in values:
                    check_positive(name, value)

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        squares = gradients.norms_squared()
        sizes = self.layer_sizes or (1,) * len(squares)
        shares = self.shares or (1.0,) * len(sizes)
        if sum(sizes) != len(squares) or len(shares) != len(sizes):
            raise ValueError(
                "Arguments `layer_sizes` and `shares` must describe the model, which "
                f"has {len(squares)} weights. Received: {self}"
            )
        unit = self.l2_norm_clip / math.hypot(*shares)
        coefficients: list[tf.Tensor] = []
        for size, share in zip(sizes, shares, strict=True):
            norm = tf.sqrt(tf.add_n(squares[len(coefficients) :][:size]))
            coefficients += [tf.minimum(1.0, share * unit / norm)] * size
        return gradients.weighted_sum(coefficients)

    def sensitivity(self, num_parameters: int) -> L2Sensitivity:
        return L2Sensitivity(self.l2_norm_clip)
