"""Denoising as a refinement: the update shrinks where it looks like pure noise."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from keras_dp_ext.refining.base import Refinement
from keras_dp_ext.refining.denoising import (
    Denoising,
    Distance,
    distance_config,
    get_distance,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.noise.base import Noise


@dataclasses.dataclass(frozen=True)
class KSDenoising(Refinement):
    """Multiplies the noised sum by its distance from the noise distribution.

    Args:
        distance: "ks" (Kolmogorov-Smirnov, the paper's), "wasserstein", "energy", or
            a function of the noised vector and its noise; see `Denoising`.

    Example:

    >>> import keras, keras_dp_ext as dp
    >>> optimizer = dp.optimizers.make_private(
    ...     keras.optimizers.SGD,
    ...     bound=dp.bounding.L2Clip(1.0),
    ...     noise=dp.noise.Gaussian(1.1),
    ...     refine=dp.refining.KSDenoising(),
    ... )

    References:
        Nasr, Shokri, Houmansadr (2020), section 3.2.
    """

    distance: Distance = "ks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance", get_distance(self.distance))

    def get_config(self) -> dict[str, Any]:
        return {"distance": distance_config(self.distance)}

    def refine(
        self, noised: list[tf.Tensor], noise: Noise, step: tf.Tensor
    ) -> list[tf.Tensor]:
        del step
        factor = Denoising(noise, self.distance).factor(noised)
        return [factor * value for value in noised]
