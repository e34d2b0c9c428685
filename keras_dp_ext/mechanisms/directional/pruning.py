"""Pruning with error feedback that looks only at what has been noised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.mechanisms.slots import slot_maker

# Thresholds are quantiles of this many values at most: any mask made from noised
# values is private, so an approximate quantile costs nothing but exactness.
_QUANTILE_SAMPLE = 65_536

# How many more may be large than such a quantile should let through: four standard
# errors for a pruning ratio of 0.95.
_QUANTILE_SLACK = 1.1


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
        slots = slot_maker(variables, add_variable)
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._sizes = [math.prod(shape) for shape in self._shapes]
        share = _QUANTILE_SLACK * (1 - self._ratio) / 2
        self._most_large = math.ceil(share * sum(self._sizes))
        self._memory = slots("pruning_memory")
        self._large = slots("pruning_large")
        self._release = add_variable(
            shape=(), dtype="int64", name="pruning_release", initializer="zeros"
        )

    @property
    def most_measured(self) -> int:
        """The most coordinates that any release measures."""
        size = sum(self._sizes)
        return min(size, math.ceil(size / self._period) + self._most_large)

    def measured(self) -> list[tf.Tensor]:
        """For each variable, which coordinates the coming release measures."""
        # As numbers: GPUs do not split booleans.
        flags = self._by_variable(tf.cast(self.measured_flat(), tf.float32))
        return [flag > 0.0 for flag in flags]

    def spread(self, values: tf.Tensor) -> tf.Tensor:
        """Hands each measured coordinate a value of its own, the others zero.

        Args:
            values: `[most_measured]`.
        """
        measured = self.measured_flat()
        place = tf.maximum(tf.cumsum(tf.cast(measured, tf.int64)) - 1, 0)
        return tf.where(measured, tf.gather(values, place), 0.0)

    def measured_flat(self) -> tf.Tensor:
        """As `measured`, but one vector for all variables."""
        # 64 bits throughout: GPUs leave 32-bit integers to the host.
        turn = tf.convert_to_tensor(self._release) % self._period
        places = tf.range(sum(self._sizes), dtype=tf.int64)
        # Counting on over variables lets every small one have its turn.
        rotating = (places + turn) % self._period == 0
        large = tf.concat(
            [tf.reshape(tf.convert_to_tensor(v) > 0, [-1]) for v in self._large], axis=0
        )
        # Never more than there are draws for: two coordinates with the same noise
        # would tell their difference.
        large &= tf.cumsum(tf.cast(large, tf.int64)) <= self._most_large
        return rotating | large

    def _by_variable(self, flat: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.reshape(part, shape)
            for part, shape in zip(
                tf.split(flat, self._sizes), self._shapes, strict=True
            )
        ]

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
