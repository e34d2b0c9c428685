"""Pruning with error feedback that looks only at what has been noised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Thresholds are quantiles of this many values at most: any mask made from noised
# values is private, so an approximate quantile costs nothing but exactness.
_QUANTILE_SAMPLE = 65_536


class DirectionalPruning:
    """Which coordinates the next release measures, and the memory of the others.

    As printed (prune each gradient by magnitude, keep the error for the next one),
    the support and the memory depend on private data and are released without
    noise. Here both come from noised values:

    - *measure*: a release covers a share `1 - ratio` of the coordinates. Half of
      them had the largest noised values last time; the other half rotates
      through all coordinates, so that each is measured again within
      `2 / (1 - ratio)` releases. A coordinate that is not measured is not
      clipped, not noised and not released.
    - *feed back*: the update is what has been noised plus the memory, pruned to
      its largest entries; the rest stays in memory.

    Args:
        ratio: Share of the coordinates that is pruned.

    References:
        Xiang et al. (2021), section 6.1; Karimireddy et al., "Error Feedback
        Fixes SignSGD and other Gradient Compression Schemes" (2019), Algorithm 2.
    """

    def __init__(self, ratio: float):
        self._ratio = ratio
        self._period = max(1, round(2 / (1 - ratio)))

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        """Creates the memory of noised errors and the set of large coordinates."""

        def slots(name: str) -> list[Any]:
            return [
                add_variable(
                    shape=tuple(variable.shape),
                    dtype="float32",
                    name=f"{name}_{index}",
                    initializer="zeros",
                )
                for index, variable in enumerate(variables)
            ]

        self._memory = slots("pruning_memory")
        self._large = slots("pruning_large")
        self._release = add_variable(
            shape=(), dtype="int64", name="pruning_release", initializer="zeros"
        )

    def measured(self) -> list[tf.Tensor]:
        """For each variable, which coordinates the coming release measures."""
        turn = tf.cast(tf.convert_to_tensor(self._release), tf.int32) % self._period
        masks, start = [], 0
        for large in self._large:
            shape = tuple(large.shape)
            size = tf.TensorShape(shape).num_elements()
            # Counting on over variables lets every small one have its turn.
            position = (tf.range(start, start + size) + turn) % self._period
            rotating = tf.reshape(position == 0, shape)
            masks.append(rotating | (tf.convert_to_tensor(large) > 0))
            start += size
        return masks

    def feed_back(self, noised: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds the memory, prunes, and keeps what is pruned for later.

        Args:
            noised: The release, zero where it was not measured.

        Returns:
            The update, zero at a share `ratio` of all coordinates (about).
        """
        totals = [
            tf.convert_to_tensor(memory) + value
            for memory, value in zip(self._memory, noised, strict=True)
        ]
        magnitudes = [tf.abs(total) for total in totals]
        sample = _sample(magnitudes)
        applied_above = _quantile(sample, self._ratio)
        large_above = _quantile(sample, (1 + self._ratio) / 2)
        update = []
        for index, (total, magnitude) in enumerate(
            zip(totals, magnitudes, strict=True)
        ):
            applied = tf.where(magnitude > applied_above, total, 0.0)
            self._memory[index].assign(total - applied)
            self._large[index].assign(tf.cast(magnitude > large_above, tf.float32))
            update.append(applied)
        self._release.assign(tf.convert_to_tensor(self._release) + 1)
        return update


def _sample(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """A sorted sample of all values, at positions that are drawn once for all.

    Even spacing would fall into step with the rotation of what is measured.
    """
    flat = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
    size = flat.shape[0]
    if size > _QUANTILE_SAMPLE:
        positions = np.random.default_rng(0).integers(size, size=_QUANTILE_SAMPLE)
        flat = tf.gather(flat, np.sort(positions))
    return tf.sort(flat)


def _quantile(ordered: tf.Tensor, probability: float) -> tf.Tensor:
    size = ordered.shape[0]
    return ordered[min(size - 1, int(probability * size))]
