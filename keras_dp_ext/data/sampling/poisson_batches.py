"""Poisson sampling: what the analysis of DP-SGD assumes, really done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_integer
from keras_dp_ext.accounting.sampling import Poisson, lots_per_epoch
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.data.sampling.capacity import (
    overflow_delta,
    slots_for,
    smallest_capacity,
)
from keras_dp_ext.data.sampling.population import Population


def poisson_batches(
    x: Any,
    y: Any = None,
    batch_size: int = 256,
    sample_weight: Any = None,
    physical_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    accumulation_steps: int = 1,
    seed: int | tuple[int, ...] | None = None,
    max_overflow_delta: float = 1e-12,
    class_weight: Mapping[int, float] | None = None,
    sampling_rate: float | None = None,
    user_ids: Any = None,
    examples_per_user: int | None = None,
) -> tf.data.Dataset:
    """Lots in which every example takes part independently with equal probability.

    In each step each of the N examples is drawn with probability
    `batch_size / N`, or `sampling_rate`. The examples drawn are put into uniformly
    random slots of a batch of fixed size. Empty slots are rows of zeros with sample
    weight 0, which private optimizers ignore exactly. A lot that is larger than its
    slots loses random examples; the little that this costs is accounted in delta (see
    `keras_dp_ext/data/sampling/capacity.py`).

    Rate, slots and steps that follow from N change if an example is added: the
    guarantee is then about neighbours of equal size ("zero-out": one example is
    replaced by one that contributes nothing), and N is public. With `sampling_rate`
    they follow from public numbers alone, and it is about adding or removing an
    example, among data sets of at most `batch_size / sampling_rate` examples.

    With `user_ids` people are drawn in place of examples, and the guarantee is about a
    person with all of their rows, however many these are. A lot takes at most
    `examples_per_user` rows of a person, at random; the optimizer averages their
    gradients and bounds the average (`keras_dp_ext/data/sampling/people.py`). All that
    is said here about examples then holds for people: batch size, rate, N, delta.

    Compile with `weighted_metrics=["accuracy"]` rather than `metrics`: Keras counts
    padding as examples in the latter.

    The pipeline is finite, and draws new lots each time it is iterated. It keeps
    its label through `map` and `prefetch`, so images can stay `uint8` here and be
    scaled behind it or in the model.

    Args:
        x: Array, tuple or dict of arrays, or a `tf.data.Dataset` of known size that
            yields single examples (it is read into memory). What does not fit into
            memory stays where it is: `np.memmap`, `tfds.data_source`, a Hugging Face
            data set, or any object with `__len__` and `__getitem__` that gives one
            example `x` or `(x, y)` for each number.
        y: Array, tuple or dict of arrays, or `None`; or the name of the target where
            the examples of such a source are dictionaries.
        batch_size: Expected number of examples in a lot; with `sampling_rate` a public
            bound on it, by which the noised sum is divided.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        physical_batch_size: Number of rows of a batch; by default the fewest that
            keep the overflow below `max_overflow_delta`. With `user_ids` a multiple of
            `examples_per_user`.
        steps_per_epoch: Number of lots in an epoch; by default `N / batch_size`, or
            `1 / sampling_rate`, rounded.
        accumulation_steps: Number of batches over which a lot is spread. The
            optimizer's `gradient_accumulation_steps` must be the same.
        seed: `None` (default) takes the operating system's entropy, whatever seeds
            TensorFlow and Keras have. A number makes the lots reproducible, and
            different from epoch to epoch. Anyone who knows it knows who took part:
            keep it as secret as the data, and take another one for each training (also
            when it is resumed: the same lots would come again), or use it for tests
            only. The privacy statement says that it is assumed to be so.
        max_overflow_delta: Greatest delta that one step may add by overflow.
        class_weight: Weight of each class in the loss, as in `fit`, where Keras does
            not allow it together with the sample weights that lots have.
        sampling_rate: The probability with which an example is drawn, if it is to be a
            public number that does not depend on N.
        user_ids: `[N]` integers or strings: to whom each row belongs.
        examples_per_user: The most rows of one person in a lot. With `user_ids` only.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range, or `physical_batch_size` too
            small for `max_overflow_delta`; or if there are more examples than
            `batch_size / sampling_rate`.

    Example:

    >>> images = np.zeros([1000, 28, 28], np.uint8)
    >>> labels = np.zeros([1000], np.uint8)
    >>> lots = poisson_batches(images, labels, batch_size=50)
    >>> lots.dp_sampling.sampling.rate
    0.05
    >>> len(lots)
    20

    The number of patients stays secret, but for a bound of 1200:

    >>> lots = poisson_batches(images, labels, batch_size=60, sampling_rate=0.05)
    >>> lots.dp_sampling.num_examples, lots.dp_sampling.sampling.adjacency
    (1200, 'add or remove one example')

    Every patient has five images, and it is patients whom we protect:

    >>> patients = np.arange(1000) // 5
    >>> lots = poisson_batches(
    ...     images, labels, batch_size=20, user_ids=patients, examples_per_user=3
    ... )
    >>> lots.dp_sampling.num_examples, lots.dp_sampling.sampling.unit
    (200, 'person')
    """
    population = Population.of(
        x, y, sample_weight, class_weight, user_ids, examples_per_user, seed=seed
    )
    if sampling_rate is None:
        population.check_batch_size(batch_size)
        public_size, rate = population.size, batch_size / population.size
        epoch = lots_per_epoch(population.size, batch_size)
    else:
        public_size = _public_size(batch_size, sampling_rate, population.size)
        rate = float(sampling_rate)
        epoch = max(1, round(1 / rate))
    check_integer("accumulation_steps", accumulation_steps)
    if steps_per_epoch is None:
        steps_per_epoch = epoch
    check_integer("steps_per_epoch", steps_per_epoch)
    needed = smallest_capacity(public_size, rate, max_overflow_delta)
    if physical_batch_size is None:
        slots = slots_for(needed, accumulation_steps)
    else:
        slots = _stated_slots(
            physical_batch_size, population, needed, batch_size, accumulation_steps
        )
    capacity = slots * accumulation_steps

    def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
        for num_lots in pipeline.blocks(steps_per_epoch):
            yield draw_lots(rng, num_lots, population.size, rate, capacity)

    sampling = Poisson(
        rate=rate,
        # It grows with the size: that of the bound holds for all below.
        overflow_delta=overflow_delta(public_size, rate, capacity),
        rate_from_size=sampling_rate is None,
        unit=population.unit,
    )
    return population.batches(
        draw,
        sampling,
        batch_size=batch_size,
        slots=slots,
        steps_per_epoch=steps_per_epoch,
        accumulation_steps=accumulation_steps,
        num_examples=public_size,
    )


def _stated_slots(
    physical_batch_size: int,
    population: Population,
    needed: int,
    batch_size: int,
    accumulation_steps: int,
) -> int:
    """Slots of a batch of so many rows; an error if lots of them overflow too often."""
    check_integer("physical_batch_size", physical_batch_size)
    rows_per_slot = population.rows_per_unit
    if physical_batch_size % rows_per_slot:
        raise ValueError(
            "Argument `physical_batch_size` must be a multiple of `examples_per_user`: "
            "a person's rows stay together. Received: physical_batch_size="
            f"{physical_batch_size}, examples_per_user={rows_per_slot}"
        )
    slots = physical_batch_size // rows_per_slot
    if slots * accumulation_steps < needed:
        least = math.ceil(needed / accumulation_steps) * rows_per_slot
        drawn = "examples" if population.people is None else "people"
        raise ValueError(
            f"Argument `physical_batch_size` must be at least {least} for lots of "
            f"{batch_size} expected {drawn} in {accumulation_steps} batches: a smaller "
            "one overflows too often to be private. "
            f"Received: physical_batch_size={physical_batch_size}"
        )
    return slots


def _public_size(batch_size: int, sampling_rate: float, num_examples: int) -> int:
    """The greatest number of examples for which the public numbers are right."""
    check_integer("batch_size", batch_size)
    if not 0.0 < sampling_rate <= 1.0:
        raise ValueError(
            "Argument `sampling_rate` must be above 0 and at most 1. "
            f"Received: sampling_rate={sampling_rate}"
        )
    # A quotient such as 60 / 0.05 may lie a rounding error below the whole number.
    public_size = math.floor(batch_size / sampling_rate * (1 + 1e-12))
    if num_examples > public_size:
        # The size stays out of the message: it is not public.
        raise ValueError(
            "Argument `batch_size` must be at least `sampling_rate` times the number "
            "of examples: slots are counted for at most `batch_size / sampling_rate` "
            f"= {public_size} examples, and there are more. Pass a greater `batch_size`"
            f". Received: batch_size={batch_size}, sampling_rate={sampling_rate}"
        )
    return public_size


def draw_lots(
    rng: np.random.Generator,
    num_lots: int,
    num_examples: int,
    rate: float,
    capacity: int,
) -> np.ndarray:
    """`[num_lots, capacity]` row indices, with `num_examples` in the empty slots.

    N independent coins of probability q are a Binomial(N, q) number of heads in a
    uniformly random subset. Of a lot that overflows a uniformly random subset is
    kept, which is a uniformly random subset again: the size is cut, no more.
    """
    lots = np.full([num_lots, capacity], num_examples, np.int32)
    sizes = np.minimum(rng.binomial(num_examples, rate, num_lots), capacity)
    for lot, size in zip(lots, sizes, strict=True):
        lot[:size] = rng.choice(num_examples, size, replace=False, shuffle=False)
        rng.shuffle(lot)  # Uniformly random slots; see capacity.py, point 1.
    return lots
