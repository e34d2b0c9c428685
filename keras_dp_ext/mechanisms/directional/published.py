"""Directional noise exactly as printed, and a record of what it really costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.analysis.published_budget import PublishedBudget
from keras_dp_ext.gradients.base import PerExampleGradients
from keras_dp_ext.mechanisms.directional.published_pruning import PublishedPruning
from keras_dp_ext.mechanisms.model_noise import standard_normals
from keras_dp_ext.mechanisms.slots import slot_maker

# Lower edges of the histogram of executed noise multipliers: 2.3% apart, from
# 1e-4 up. What is below the first edge counts as 0, which is no privacy at all.
_EDGES = np.concatenate([[0.0], 10.0 ** (np.arange(-400, 401) / 100)])


class PublishedDirectional:
    """Algorithm 1 of Xiang et al.: `sigma_i` from Eq. 11 to 13 and a noised `w`.

    Rows are clipped to L2 norm `alpha`. The sum gets noise of standard deviation
    `alpha / |w| * sqrt(sum_i |w_i|**(4/3) / tau) * |w_i|**(1/3)`: the paper's
    `sigma_i` on the average (of sensitivity `alpha / lot`), times the lot. Since
    a neighbour may differ along any coordinate, the executed noise multiplier is
    the *least* `sigma_i / alpha`; it is counted in a histogram, rounded down.

    Args:
        l2_norm_clip: `alpha`.
        budget: Where `tau` comes from.
        weights: `"gradient"` for a `w` that `release_direction` provides before
            each release, or one public tensor (or number) for each variable.
        pruning: As printed, or `None` for none. With it nothing is private.
    """

    def __init__(
        self,
        l2_norm_clip: float,
        budget: PublishedBudget,
        weights: str | Sequence[Any],
        pruning: PublishedPruning | None = None,
    ):
        self._pruning = pruning
        self._l2_norm_clip = l2_norm_clip
        self._budget = budget
        self._weights = weights
        self.needs_direction = isinstance(weights, str)
        self.direction_source: Any = None

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        self._counts = add_variable(
            shape=_EDGES.shape,
            dtype="int64",
            name="noise_multiplier_counts",
            initializer="zeros",
        )
        if self._pruning:
            self._pruning.build(variables, add_variable)
        if self.needs_direction:
            self._direction = slot_maker(variables, add_variable)("direction")
            # One more than the release that the direction is for: 0 is none yet.
            self._direction_serial = add_variable(
                shape=(), dtype="int64", name="direction_serial", initializer="zeros"
            )
            self._direction_releases = add_variable(
                shape=(), dtype="int64", name="direction_releases", initializer="zeros"
            )

    def release_direction(
        self, gradient: Sequence[tf.Tensor], seed: tf.Tensor, step: Any
    ) -> None:
        """Lines 4 and 5: clips the full-batch gradient, adds noise, stores it."""
        gradient = [tf.cast(value, tf.float32) for value in gradient]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradient])
        norm = tf.linalg.global_norm(gradient)
        factor = tf.minimum(1.0, self._l2_norm_clip / norm)
        deviation = self._l2_norm_clip * self._budget.direction_multiplier
        normals = standard_normals([value.shape for value in gradient], seed)
        for variable, value, normal in zip(
            self._direction, gradient, normals, strict=True
        ):
            clipped = tf.where(finite, factor * value, tf.zeros_like(value))
            variable.assign(clipped + deviation * normal)
        self._direction_serial.assign(tf.cast(step, tf.int64) + 1)
        self._direction_releases.assign(
            tf.convert_to_tensor(self._direction_releases) + 1
        )

    def has_direction_for(self, step: int) -> bool:
        """Whether the direction of this release has been released already."""
        return int(self._direction_serial.numpy()) == int(step) + 1

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        if self._pruning:
            return self._pruning.bound(gradients, self._l2_norm_clip)
        norm = tf.sqrt(gradients.norm_squared())
        coefficients = tf.where(
            tf.math.is_finite(norm), tf.minimum(1.0, self._l2_norm_clip / norm), 0.0
        )
        return gradients.weighted_sum(coefficients)

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        if self.needs_direction and self.direction_source is None:
            raise ValueError(
                'DirectionalSGD(guarantee="published") needs the gradient of the '
                "whole training set before each update (Xiang et al., Algorithm 1, "
                "line 4) and never takes it from the current batch. Pass "
                "`callbacks=[keras_dp_ext.callbacks.FullBatchDirection(x, y)]` to "
                "`fit`, or call `optimizer.mechanism.release_direction(...)` "
                "yourself. Received: no source of full-batch gradients."
            )
        multipliers = self._multipliers(shapes)
        noise = [
            tf.cast(self._l2_norm_clip * multiplier, normal.dtype) * normal
            for multiplier, normal in zip(
                multipliers, standard_normals(shapes, seed), strict=True
            )
        ]
        if self.needs_direction:
            # A direction of an earlier release was made for other weights, and its
            # cost is counted once. Inside XLA an assertion is dropped; NaN is not.
            fresh = tf.convert_to_tensor(self._direction_serial) == step + 1
            noise = [tf.where(fresh, value, float("nan")) for value in noise]
        return noise

    def refine(self, noised: list[tf.Tensor]) -> list[tf.Tensor]:
        multipliers = self._multipliers([value.shape for value in noised])
        least = tf.reduce_min(tf.stack([tf.reduce_min(m) for m in multipliers]))
        # Float32 arithmetic above is good to 1e-5; NaN ends in the bin of 0.
        reached = least * (1 - 1e-4) >= tf.constant(_EDGES, tf.float32)
        bin_index = tf.maximum(tf.reduce_sum(tf.cast(reached, tf.int32)) - 1, 0)
        self._counts.assign(
            tf.convert_to_tensor(self._counts)
            + tf.one_hot(bin_index, len(_EDGES), dtype=tf.int64)
        )
        return self._pruning.refine(noised) if self._pruning else noised

    def multiplier_counts(self) -> list[tuple[float, int]]:
        """`(noise multiplier, number of releases)` for what has been executed."""
        counts = self._counts.numpy()
        if self._pruning and counts.sum():
            return [(0.0, int(counts.sum()))]
        return [
            (float(_EDGES[index]), int(counts[index]))
            for index in np.flatnonzero(counts)
        ]

    def direction_releases(self) -> int:
        """How often a noised direction has been made, whether used or not."""
        if not self.needs_direction:
            return 0
        return int(self._direction_releases.numpy())

    def _multipliers(self, shapes: Sequence[Any]) -> list[tf.Tensor]:
        """`sigma_i / alpha`, by Eq. 11 to 13 as printed."""
        if self.needs_direction:
            magnitudes = [tf.abs(tf.convert_to_tensor(w)) for w in self._direction]
        else:
            magnitudes = [
                tf.broadcast_to(tf.abs(tf.cast(w, tf.float32)), tuple(shape))
                for w, shape in zip(self._weights, shapes, strict=True)
            ]
        # Only ratios count; a largest entry of 1 keeps the powers in range.
        largest = tf.reduce_max(tf.stack([tf.reduce_max(m) for m in magnitudes]))
        magnitudes = [m / largest for m in magnitudes]
        norm = tf.linalg.global_norm(magnitudes)
        cost = tf.add_n([tf.reduce_sum(tf.pow(m, 4 / 3)) for m in magnitudes])
        factor = tf.sqrt(cost / self._budget.gradient_tau) / norm
        return [factor * tf.pow(m, 1 / 3) for m in magnitudes]
