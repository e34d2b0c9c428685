"""Cyclic Poisson sampling: what amplified banded noise assumes, really done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_integer
from keras_dp_ext.accounting.records import new_id
from keras_dp_ext.accounting.sampling import CyclicPoisson
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.data.sampling.capacity import (
    overflow_delta,
    slots_for,
    smallest_capacity,
)
from keras_dp_ext.data.sampling.poisson_batches import draw_lots
from keras_dp_ext.data.sampling.population import Population


def cyclic_poisson_batches(
    x: Any,
    y: Any = None,
    batch_size: int = 256,
    cycle: int = 16,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    accumulation_steps: int = 1,
    seed: int | tuple[int, ...] | None = None,
    max_overflow_delta: float = 1e-12,
    class_weight: Mapping[int, float] | None = None,
    user_ids: Any = None,
    examples_per_user: int | None = None,
) -> tf.data.Dataset:
    """Lots from groups of examples that take turns, each a Poisson sample of its group.

    The data are cut into `cycle` random groups, once. Step t draws each example of group
    `t mod cycle` with probability `cycle * batch_size / N`: an example can take part in
    every `cycle`-th step only, which is what `dp.noise.Banded(bands=cycle)` needs for its
    amplification. With `cycle=1` it is `poisson_batches`.

    Slots, padding and metrics are as in `poisson_batches`. The guarantee is about
    neighbours of equal size ("zero-out"): the groups depend on N, which is public.

    Args:
        x: Array, nest of arrays, `tf.data.Dataset` or source of single examples; see
            `poisson_batches`.
        y: Array, nest of arrays or `None`.
        batch_size: Expected number of examples in a lot.
        cycle: Number of groups, at least the bands of the noise. At most
            `N / batch_size`.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        steps_per_epoch: Number of lots in an epoch, a multiple of `cycle`: each epoch
            begins with the first group. By default the one next to `N / batch_size`.
        accumulation_steps: Number of batches over which a lot is spread. The
            optimizer's `gradient_accumulation_steps` must be the same.
        seed: `None` (default) takes the operating system's entropy; see
            `poisson_batches`.
        max_overflow_delta: Greatest delta that one step may add by overflow.
        class_weight: Weight of each class in the loss; see `poisson_batches`.
        user_ids: `[N]` integers or strings: to whom each row belongs. It is people then
            who make up the groups and are drawn; see `poisson_batches`.
        examples_per_user: The most rows of one person in a lot.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> lots = cyclic_poisson_batches(np.zeros([1000, 3]), batch_size=50, cycle=4)
    >>> lots.dp_sampling.sampling
    CyclicPoisson(rate=0.2, cycle=4, overflow_delta=...)
    >>> len(lots)
    20
    """
    population = Population.of(
        x, y, sample_weight, class_weight, user_ids, examples_per_user, seed=seed
    )
    population.check_batch_size(batch_size)
    check_integer("cycle", cycle)
    check_integer("accumulation_steps", accumulation_steps)
    size = population.size
    rate = batch_size * cycle / size
    if rate > 1:
        raise ValueError(
            "Argument `cycle` must be at most the number of examples (with `user_ids`, "
            "of people) over `batch_size` "
            f"({size // batch_size}): a group has to fill a lot. "
            f"Received: cycle={cycle}"
        )
    if steps_per_epoch is None:
        steps_per_epoch = max(1, round(size / batch_size / cycle)) * cycle
    check_integer("steps_per_epoch", steps_per_epoch)
    if steps_per_epoch % cycle:
        raise ValueError(
            f"Argument `steps_per_epoch` must be a multiple of `cycle` ({cycle}): each "
            "epoch begins with the first group. "
            f"Received: steps_per_epoch={steps_per_epoch}"
        )
    largest = math.ceil(size / cycle)
    needed = smallest_capacity(largest, rate, max_overflow_delta)
    slots = slots_for(needed, accumulation_steps)
    capacity = slots * accumulation_steps
    once = pipeline.generator(population.agreement.seed)
    groups = np.array_split(once.permutation(size), cycle)

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        step = 0
        for num_lots in pipeline.blocks(steps_per_epoch):
            lots = []
            for number in range(step, step + num_lots):
                group = np.append(groups[number % cycle], size)
                places = draw_lots(rng, 1, len(group) - 1, rate, capacity)
                lots.append(group[places].astype(np.int32))
            step += num_lots
            yield np.concatenate(lots)

    sampling = CyclicPoisson(
        rate=rate,
        cycle=cycle,
        overflow_delta=overflow_delta(largest, rate, capacity),
        groups=new_id(),
        unit=population.unit,
    )
    return population.batches(
        draw,
        sampling,
        batch_size=batch_size,
        slots=slots,
        steps_per_epoch=steps_per_epoch,
        accumulation_steps=accumulation_steps,
    )
