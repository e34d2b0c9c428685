"""Plain shuffling: each example takes part once in every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.accounting.sampling import Sampling, Shuffled
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.data.sampling.population import Population, slots_of_a_batch


def shuffled_batches(
    x: Any,
    y: Any = None,
    batch_size: int = 256,
    sample_weight: Any = None,
    accumulation_steps: int = 1,
    seed: int | tuple[int, ...] | None = None,
    class_weight: Mapping[int, float] | None = None,
    user_ids: Any = None,
    examples_per_user: int | None = None,
) -> tf.data.Dataset:
    """The whole data set in random order, once an epoch.

    Shuffling has no proven amplification: the accountant charges each epoch as one
    release without sampling. Prefer `poisson_batches`.

    The examples are put into uniformly random slots of the epoch, of which there is
    at least one more than examples (the others are padding of weight 0): one example
    more then fills one padding slot and moves nobody. A data set cut into full
    batches would push another example out, at twice the sensitivity.

    Args:
        x: Array, tuple or dict of arrays, or a `tf.data.Dataset` of known size that
            yields single examples (it is read into memory). What does not fit into
            memory stays where it is: `np.memmap`, `tfds.data_source`, a Hugging Face
            data set, or any object with `__len__` and `__getitem__` that gives one
            example `x` or `(x, y)` for each number.
        y: Array, tuple or dict of arrays, or `None`; or the name of the target where
            the examples of such a source are dictionaries.
        batch_size: Number of slots in a lot, a multiple of `accumulation_steps`.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        accumulation_steps: Number of batches over which a lot is spread.
        seed: `None` (default) takes the operating system's entropy; see
            `poisson_batches`.
        class_weight: Weight of each class in the loss; see `poisson_batches`.
        user_ids: `[N]` integers or strings: to whom each row belongs. People are
            drawn then, each once an epoch; see `poisson_batches`.
        examples_per_user: The most rows of one person in a lot.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range.
    """
    return slotted_batches(
        Population.of(
            x, y, sample_weight, class_weight, user_ids, examples_per_user, seed=seed
        ),
        lambda steps, rate, unit: Shuffled(steps, rate, unit=unit),
        batch_size,
        accumulation_steps,
    )


def slotted_batches(
    population: Population,
    sampling_of: Callable[[int, float, str], Sampling],
    batch_size: int,
    accumulation_steps: int,
    reshuffled: bool = True,
) -> tf.data.Dataset:
    """Every example in a slot of each epoch; see `shuffled_batches`.

    Args:
        population: Those who get slots.
        sampling_of: From the number of lots in an epoch, the rate and the unit to the
            sampling.
        batch_size: Number of slots in a lot.
        accumulation_steps: Number of batches over which a lot is spread.
        reshuffled: Whether each epoch draws the slots anew.
    """
    size = population.size
    population.check_batch_size(batch_size)
    slots = slots_of_a_batch(batch_size, accumulation_steps)
    steps_per_epoch = math.ceil((size + 1) / batch_size)

    def draw_order(rng: np.random.Generator) -> np.ndarray:
        order = np.full([steps_per_epoch * batch_size], size, np.int32)
        order[:size] = np.arange(size)
        rng.shuffle(order)
        return order.reshape([steps_per_epoch, batch_size])

    fixed = (
        None
        if reshuffled
        else draw_order(pipeline.generator(population.agreement.seed))
    )

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return pipeline.in_blocks(draw_order(rng) if fixed is None else fixed)

    return population.batches(
        draw,
        sampling_of(steps_per_epoch, batch_size / size, population.unit),
        batch_size=batch_size,
        slots=slots,
        steps_per_epoch=steps_per_epoch,
        accumulation_steps=accumulation_steps,
    )
