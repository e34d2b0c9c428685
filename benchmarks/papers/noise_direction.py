"""Algorithm 1 of Xiang et al. at a bearable price: its noise in place of a noised `w`.

Before every update the algorithm releases `w_t = v_t + N(0, s^2 I)`, with `v_t` the
gradient of all data, clipped to norm alpha, and `s = m alpha`. That takes a pass over all
data for every update. At the paper's budgets m is in the thousands: what is released is
noise, whatever the data are. So leave out `v_t`. How much does the training change?

Write P for the law of all that the algorithm with `w_t = v_t + noise` produces (weights,
lots, directions), and Q for the law with `w_t = noise`. Given the past, both draw
everything but `w_t` in the same way from `w_t`, so that the chain rule of the
Kullback-Leibler divergence has one term for each step, that of two Gaussians:

    KL(P || Q) = sum_t E_P[ |v_t|^2 / (2 s^2) ] <= T alpha^2 / (2 m^2 alpha^2)
               = T / (2 m^2).

By Pinsker's inequality, TV(P, Q) <= sqrt(KL / 2) <= sqrt(T) / (2 m): no event, such as "the
test accuracy exceeds 90%", has probabilities under P and Q that differ by more. n
independent trainings differ by at most n times that. For Table 1's MNIST (epsilon 1, a
share of 1/8 for w, T = 6,420) the bound is 0.012.
"""

from __future__ import annotations

import math
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp


def total_variation_bound(budget: dp.analysis.PublishedBudget) -> float:
    """By how much leaving out the gradient changes the probability of any event."""
    return min(1.0, math.sqrt(budget.steps) / (2 * budget.direction_multiplier))


class NoiseDirection(keras.callbacks.Callback):
    """Releases a direction of pure noise before every update.

    Stands where `dp.callbacks.FullBatchDirection` does. Its releases are counted as
    those of the real direction are, so that no epsilon is smaller for it.
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self._release()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._release()

    def _release(self) -> None:
        mechanism = self.model.optimizer.mechanism
        step = int(self.model.optimizer.releases.numpy())
        if not mechanism.has_direction_for(step):
            nothing = [tf.zeros(v.shape) for v in self.model.trainable_variables]
            seed = tf.constant(np.frombuffer(os.urandom(8), np.int32))
            mechanism.release_direction(nothing, seed, step)
