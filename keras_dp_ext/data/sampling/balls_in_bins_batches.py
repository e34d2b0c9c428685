"""Balls in bins: each example in one random lot of every pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_integer
from keras_dp_ext.accounting.sampling import BallsInBins, lots_per_epoch
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.data.sampling.capacity import (
    overflow_delta,
    slots_for,
    smallest_capacity,
)
from keras_dp_ext.data.sampling.population import Population


def balls_in_bins_batches(
    x: Any,
    y: Any = None,
    batch_size: int = 256,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    accumulation_steps: int = 1,
    seed: int | tuple[int, ...] | None = None,
    max_overflow_delta: float = 1e-12,
    class_weight: Mapping[int, float] | None = None,
    user_ids: Any = None,
    examples_per_user: int | None = None,
) -> tf.data.Dataset:
    """Lots of which each example is in one, at random, in every pass over the data.

    Each example chooses one of the `steps_per_epoch` lots of a pass, independently of all
    others, and chooses anew in the next pass. As after shuffling, everybody takes part
    once in a pass; unlike shuffling it has a proven amplification, about that of
    `poisson_batches` (`keras_dp_ext/accounting/balls_in_bins.py`). For Gaussian noise that
    is drawn anew in each step.

    Slots, padding and metrics are as in `poisson_batches`. Where some lot of a pass could
    overflow, it loses random examples; the little that this costs is accounted in delta.

    A number of lots that follows from N changes if an example is added: the guarantee is
    then about neighbours of equal size ("zero-out"), and N is public. With
    `steps_per_epoch` it follows from public numbers alone, and is about adding or removing
    an example, among data sets of at most `batch_size * steps_per_epoch` examples.

    Args:
        x: Array, nest of arrays, `tf.data.Dataset` or source of single examples; see
            `poisson_batches`.
        y: Array, nest of arrays or `None`.
        batch_size: Expected number of examples in a lot; with `steps_per_epoch` a public
            bound on it. The noised sum is divided by it.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        steps_per_epoch: Number of lots in a pass, if it is to be a public number that does
            not depend on N; by default `N / batch_size`, rounded.
        accumulation_steps: Number of batches over which a lot is spread. The
            optimizer's `gradient_accumulation_steps` must be the same.
        seed: `None` (default) takes the operating system's entropy; see
            `poisson_batches`.
        max_overflow_delta: Greatest delta that one pass may add by overflow.
        class_weight: Weight of each class in the loss; see `poisson_batches`.
        user_ids: `[N]` integers or strings: to whom each row belongs. It is people then
            who choose a lot; see `poisson_batches`.
        examples_per_user: The most rows of one person in a lot.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range, or if there are more examples than
            `batch_size * steps_per_epoch`.

    Example:

    >>> lots = balls_in_bins_batches(np.zeros([1000, 3]), batch_size=50)
    >>> lots.dp_sampling.sampling
    BallsInBins(steps_per_epoch=20, overflow_delta=...)
    >>> int(sum(weight.numpy().sum() for _, _, weight in lots))
    1000

    References:
        [Chua et al., 2024](https://arxiv.org/abs/2412.16802)
    """
    population = Population.of(
        x, y, sample_weight, class_weight, user_ids, examples_per_user, seed=seed
    )
    check_integer("accumulation_steps", accumulation_steps)
    if steps_per_epoch is None:
        population.check_batch_size(batch_size)
        public_size = population.size
        steps = lots_per_epoch(public_size, batch_size)
    else:
        check_integer("batch_size", batch_size)
        check_integer("steps_per_epoch", steps_per_epoch)
        steps, public_size = steps_per_epoch, batch_size * steps_per_epoch
        if population.size > public_size:
            # The size stays out of the message: it is not public.
            raise ValueError(
                "Argument `steps_per_epoch` must be at least the number of examples over "
                f"`batch_size`: slots are counted for at most {public_size} examples, and "
                "there are more. Pass a greater `batch_size` or `steps_per_epoch`. "
                f"Received: batch_size={batch_size}, steps_per_epoch={steps_per_epoch}"
            )
    # `overflow_delta` is a bin's chance to be full, over the number of bins; what counts
    # is the chance of any bin.
    needed = smallest_capacity(public_size, 1 / steps, max_overflow_delta / steps**2)
    slots = slots_for(needed, accumulation_steps)
    capacity = slots * accumulation_steps
    overflow = steps**2 * overflow_delta(public_size, 1 / steps, capacity)

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return pipeline.in_blocks(draw_bins(rng, steps, population.size, capacity))

    sampling = BallsInBins(
        steps_per_epoch=steps,
        overflow_delta=min(1.0, overflow),
        steps_from_size=steps_per_epoch is None,
        unit=population.unit,
    )
    return population.batches(
        draw,
        sampling,
        batch_size=batch_size,
        slots=slots,
        steps_per_epoch=steps,
        accumulation_steps=accumulation_steps,
        num_examples=public_size,
    )


def draw_bins(
    rng: np.random.Generator, num_lots: int, num_examples: int, capacity: int
) -> np.ndarray:
    """`[num_lots, capacity]` row indices, with `num_examples` in the empty slots.

    N independent choices of a lot are multinomial sizes and a uniformly random partition
    of that shape. Of a lot that overflows a uniformly random subset is kept.
    """
    lots = np.full([num_lots, capacity], num_examples, np.int32)
    sizes = rng.multinomial(num_examples, np.full(num_lots, 1 / num_lots))
    order = rng.permutation(num_examples)
    for lot, chosen in zip(lots, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
        lot[: min(len(chosen), capacity)] = chosen[:capacity]
        rng.shuffle(lot)  # Uniformly random slots; see capacity.py, point 1.
    return lots
