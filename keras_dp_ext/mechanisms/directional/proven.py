"""Directional noise that keeps its promise: ellipsoid clip, noise of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.bounding.ellipsoid import ellipsoid_clip
from keras_dp_ext.gradients.base import PerExampleGradients
from keras_dp_ext.mechanisms import model_noise
from keras_dp_ext.mechanisms.directional.pruning import DirectionalPruning
from keras_dp_ext.mechanisms.directional.scales import DirectionalScales

# Axis of a coordinate that is not measured, over the largest of one that is.
_FREE_AXIS = 1e3


class ProvenDirectional:
    """Clips to `|g / s| <= C` and adds N(0, (sigma C s_i)**2).

    Divided by `s`, this is DP-SGD: the Gaussian mechanism of multiplier `sigma`.
    `s` is made from earlier releases, so it is known to all who saw those.

    Args:
        l2_norm_clip: `C`.
        noise_multiplier: `sigma`.
        scales: Where `s` comes from.
        pruning: Which coordinates are released, or `None` for all.
    """

    def __init__(
        self,
        l2_norm_clip: float,
        noise_multiplier: float,
        scales: DirectionalScales,
        pruning: DirectionalPruning | None,
    ):
        self._l2_norm_clip = l2_norm_clip
        self._noise_multiplier = noise_multiplier
        self._scales = scales
        self._pruning = pruning

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        self._scales.build(variables, add_variable)
        if self._pruning:
            self._pruning.build(variables, add_variable)

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        scales = self._scales.current()
        if not self._pruning:
            return ellipsoid_clip(gradients, self._l2_norm_clip, scales)
        measured = self._pruning.measured()
        # What is not measured hardly counts in the norm, but it does count: the
        # engine computes in units of a row's largest entry, and next to an entry
        # that is free to be huge the others would be lost to underflow.
        free = _FREE_AXIS * self._scales.max_ratio
        scales = [
            tf.where(mask, scale, free)
            for mask, scale in zip(measured, scales, strict=True)
        ]
        return [
            tf.where(mask, total, 0.0)
            for mask, total in zip(
                measured,
                ellipsoid_clip(gradients, self._l2_norm_clip, scales),
                strict=True,
            )
        ]

    def draw_noise(self, shapes: Sequence[Any], seed: tf.Tensor) -> list[tf.Tensor]:
        unit = self._noise_multiplier * self._l2_norm_clip
        size = model_noise.total_size(shapes)
        if self._pruning:
            # No more is drawn than is measured, in a size that is known to XLA.
            size = self._pruning.most_measured
        (normals,) = model_noise.standard_normals([(size,)], seed)
        if self._pruning:
            normals = self._pruning.spread(normals)
        scales = tf.cast(unit * self._scales.flat(), normals.dtype)
        return model_noise.cut(scales * normals, shapes)

    def refine(self, noised: list[tf.Tensor]) -> list[tf.Tensor]:
        if not self._pruning:
            self._scales.update(noised)
            return noised
        self._scales.update(noised, self._pruning.measured_flat())
        return self._pruning.feed_back(noised)
