"""The same batches in each epoch: for correlated noise without random sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_dp_ext.accounting.records import new_id
from keras_dp_ext.accounting.sampling import FixedOrder
from keras_dp_ext.data.sampling.population import Population
from keras_dp_ext.data.sampling.shuffled_batches import slotted_batches


def fixed_order_batches(
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
    """The whole data set, shuffled once, in the same order in every epoch.

    An example takes part once in an epoch, always at the same place: as far apart as can
    be. That is what correlated noise (`dp.noise.TreeAggregation`, `Banded`,
    `BufferedToeplitz`) makes the most of, and needs no amplification by sampling: the
    order may be known to everybody.

    As in `shuffled_batches`, at least one slot is padding of weight 0: replacing an
    example by nothing moves nobody else.

    Args:
        x: Array, nest of arrays, `tf.data.Dataset` or source of single examples; see
            `poisson_batches`.
        y: Array, nest of arrays or `None`.
        batch_size: Number of slots in a lot, a multiple of `accumulation_steps`.
        sample_weight: `[N]` array of weights for the loss, or `None`.
        accumulation_steps: Number of batches over which a lot is spread.
        seed: Of the order; `None` (default) takes the operating system's entropy. Go on
            with the same data set object: another one has another order, and noise
            begins again with it.
        class_weight: Weight of each class in the loss; see `poisson_batches`.
        user_ids: `[N]` integers or strings: to whom each row belongs. It is people then
            who have their places; see `poisson_batches`.
        examples_per_user: The most rows of one person in a lot.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)` with the attribute
        `dp_sampling`, a `SamplingLabel`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> import numpy as np
    >>> lots = fixed_order_batches(np.zeros([1000, 3]), batch_size=100)
    >>> lots.dp_sampling.sampling
    FixedOrder(steps_per_epoch=11)
    """
    return slotted_batches(
        Population.of(
            x, y, sample_weight, class_weight, user_ids, examples_per_user, seed=seed
        ),
        lambda steps, rate, unit: FixedOrder(steps, order=new_id(), unit=unit),
        batch_size,
        accumulation_steps,
        reshuffled=False,
    )
