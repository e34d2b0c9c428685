"""Plain shuffling: each example takes part once in every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.accounting.sampling import Sampling, Shuffled
from keras_dp_ext.data.sampling import arrays, checks, pipeline
from keras_dp_ext.data.sampling.class_weight import with_class_weight
from keras_dp_ext.data.sampling.label import SamplingLabel, attach
from keras_dp_ext.data.sampling.people import people_of


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
        x,
        y,
        batch_size,
        sample_weight,
        accumulation_steps,
        seed,
        class_weight,
        user_ids,
        examples_per_user,
        sampling_of=lambda steps, rate, unit: Shuffled(steps, rate, unit=unit),
        reshuffled=True,
    )


def slotted_batches(
    x: Any,
    y: Any,
    batch_size: int,
    sample_weight: Any,
    accumulation_steps: int,
    seed: int | tuple[int, ...] | None,
    class_weight: Mapping[int, float] | None,
    user_ids: Any,
    examples_per_user: int | None,
    *,
    sampling_of: Callable[[int, float, str], Sampling],
    reshuffled: bool,
) -> tf.data.Dataset:
    """Every example in a slot of each epoch; see `shuffled_batches`.

    Args:
        sampling_of: From the number of lots in an epoch, the rate and the unit to the
            sampling.
        reshuffled: Whether each epoch draws the slots anew.
    """
    x, y, sample_weight, num_examples = arrays.as_rows(x, y, sample_weight)
    sample_weight = with_class_weight(sample_weight, class_weight, y)
    people = people_of(user_ids, num_examples, examples_per_user)
    rows_per_slot = 1 if people is None else people.rows_per_person
    if people is not None:
        num_examples = people.count
    checks.batch_size(batch_size, num_examples)
    physical_batch_size = checks.physical_batch_size(batch_size, accumulation_steps)
    physical_batch_size *= rows_per_slot
    steps_per_epoch = math.ceil((num_examples + 1) / batch_size)

    def draw_order(rng: np.random.Generator) -> np.ndarray:
        slots = np.full([steps_per_epoch * batch_size], num_examples, np.int32)
        slots[:num_examples] = np.arange(num_examples)
        rng.shuffle(slots)
        return slots.reshape([steps_per_epoch, batch_size])

    order = None if reshuffled else draw_order(pipeline.generator(seed))

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        lots = draw_order(rng) if order is None else order
        if people is not None:
            lots = people.rows_of(lots, people.shuffled(rng), rng)
        start = 0
        for num_lots in pipeline.blocks(steps_per_epoch):
            yield lots[start : start + num_lots].reshape([-1, physical_batch_size])
            start += num_lots

    dataset = pipeline.batches_from_indices(
        draw,
        x,
        y,
        sample_weight,
        num_batches=steps_per_epoch * accumulation_steps,
        physical_batch_size=physical_batch_size,
        masked=True,
        seed=seed,
    )
    return attach(
        dataset,
        SamplingLabel(
            sampling=sampling_of(
                steps_per_epoch,
                batch_size / num_examples,
                "example" if people is None else "person",
            ),
            num_examples=num_examples,
            expected_batch_size=batch_size,
            accumulation_steps=accumulation_steps,
            steps_per_epoch=steps_per_epoch,
            masked=True,
            rows_per_unit=rows_per_slot,
        ),
    )
