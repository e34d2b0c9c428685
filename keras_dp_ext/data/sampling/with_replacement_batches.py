"""Sampling with replacement: batches of independent uniform draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_integer
from keras_dp_ext.accounting.sampling import WithReplacement, lots_per_epoch
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.data.sampling.population import Population, slots_of_a_batch


def with_replacement_batches(
    x: Any,
    y: Any = None,
    batch_size: int = 256,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    accumulation_steps: int = 1,
    seed: int | tuple[int, ...] | None = None,
) -> tf.data.Dataset:
    """Lots of `batch_size` independent, uniform draws, as in Nasr et al.

    An example may occur several times in one lot. Prefer `poisson_batches`, whose
    analysis is tighter; this is for repeating the experiments of that paper.

    Args:
        x: Array, tuple or dict of arrays, or a `tf.data.Dataset` of known size that
            yields single examples (it is read into memory).
        y: Array, tuple or dict of arrays, or `None`.
        batch_size: Number of draws in a lot, a multiple of `accumulation_steps`.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        steps_per_epoch: Number of lots in an epoch; by default `N / batch_size`,
            rounded.
        accumulation_steps: Number of batches over which a lot is spread.
        seed: `None` (default) takes the operating system's entropy; see
            `poisson_batches`.

    Returns:
        A `tf.data.Dataset` of `(x, y)` or `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range.

    References:
        [Nasr et al., 2020](https://arxiv.org/abs/2007.11524)
    """
    population = Population.of(x, y, sample_weight, seed=seed)
    population.check_batch_size(batch_size)
    slots = slots_of_a_batch(batch_size, accumulation_steps)
    if steps_per_epoch is None:
        steps_per_epoch = lots_per_epoch(population.size, batch_size)
    check_integer("steps_per_epoch", steps_per_epoch)

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        for num_lots in pipeline.blocks(steps_per_epoch):
            yield rng.integers(
                population.size, size=[num_lots, batch_size], dtype=np.int32
            )

    return population.batches(
        draw,
        WithReplacement(batch_size=batch_size, num_examples=population.size),
        batch_size=batch_size,
        slots=slots,
        steps_per_epoch=steps_per_epoch,
        accumulation_steps=accumulation_steps,
        masked=False,
    )
