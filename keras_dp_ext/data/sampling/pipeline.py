"""From a source of row indices to a tf.data pipeline of batches."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.data.sampling import arrays
from keras_dp_ext.data.sampling.class_weight import explain_class_weight
from keras_dp_ext.data.sampling.sources import SourceRows
from keras_dp_ext.data.sampling.workers import Agreement

# A source draws the indices of one epoch: int32 arrays `[batches, physical_batch]`
# in which the index `num_examples` stands for padding.
IndexSource = Callable[[np.random.Generator], Iterator[np.ndarray]]

# Indices cross from Python to tf.data in blocks of about this many lots: the
# crossing costs as much as drawing ten lots.
LOTS_PER_BLOCK = 32

_SHUFFLE_ADVICE = (
    "`shuffle=True` was passed, but will be ignored since the data `x` was provided as "
    r"a tf\.data\.Dataset"
)

Seed = int | Sequence[int] | None


def blocks(num_lots: int) -> Iterator[int]:
    """Splits a number of lots into blocks of at most `LOTS_PER_BLOCK`."""
    for start in range(0, num_lots, LOTS_PER_BLOCK):
        yield min(LOTS_PER_BLOCK, num_lots - start)


def in_blocks(lots: np.ndarray) -> Iterator[np.ndarray]:
    """The lots of an epoch that are drawn already, one block after the other."""
    start = 0
    for num_lots in blocks(len(lots)):
        yield lots[start : start + num_lots]
        start += num_lots


def generator(seed: Seed, epoch: int | None = None) -> np.random.Generator:
    """A source of random numbers for one epoch, or for what is drawn once before it.

    Without a seed it takes the operating system's entropy.
    """
    key = () if epoch is None else (epoch,)
    entropy = np.random.SeedSequence(seed, spawn_key=() if seed is None else key)
    return np.random.Generator(np.random.PCG64DXSM(entropy))


def batches_from_indices(
    source: IndexSource,
    x: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    *,
    num_batches: int,
    physical_batch_size: int,
    masked: bool,
    agreement: Agreement,
) -> tf.data.Dataset:
    """A finite pipeline that draws afresh each time it is iterated.

    Args:
        source: Draws the row indices of one epoch.
        x: Array, nest of arrays or `SourceRows`.
        y: Array, nest of arrays or `None`.
        sample_weight: `[num_examples]` array or `None`.
        num_batches: Number of physical batches in an epoch.
        physical_batch_size: Rows in each of them.
        masked: Whether padding occurs, so that there must be sample weights.
        agreement: What all workers draw from; a seed of `None` is the operating
            system's entropy in each epoch.

    Returns:
        A data set of `(x, y, sample_weight)`, or of `(x, y)` if nothing is masked
        and no weights are given.
    """
    num_examples = len(tf.nest.flatten(x)[0])
    if sample_weight is None and masked:
        sample_weight = np.ones([num_examples], np.float32)
    gather = _gather_from(x, y, sample_weight)
    epoch_numbers = itertools.count()

    def draw_epoch() -> Iterator[np.ndarray]:
        epoch = next(epoch_numbers)
        return agreement.checked(source(generator(agreement.seed, epoch)), epoch)

    # `fit` advises to shuffle data sets before they are passed. That would spoil a
    # sampling that the analysis relies on.
    warnings.filterwarnings("ignore", message=_SHUFFLE_ADVICE)
    dataset = tf.data.Dataset.from_generator(
        draw_epoch,
        output_signature=tf.TensorSpec([None, physical_batch_size], tf.int32),
    )
    dataset = dataset.unbatch()
    dataset = dataset.map(
        gather, num_parallel_calls=4 if isinstance(x, SourceRows) else 2
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    dataset = dataset.prefetch(4).with_options(_rows_for_each_worker())
    return explain_class_weight(dataset) if masked else dataset


def _gather_from(x: Any, y: Any, sample_weight: Any) -> Callable[[tf.Tensor], Any]:
    """From row indices to `(x, y)` or `(x, y, sample_weight)`."""
    source = x if isinstance(x, SourceRows) else None
    columns = (None, None) if source is not None else (x, y)
    columns = columns if sample_weight is None else (*columns, sample_weight)
    columns = tf.nest.map_structure(
        lambda leaf: None if leaf is None else arrays.with_zero_row(leaf), columns
    )

    def gather(indices: tf.Tensor) -> Any:
        rows = tf.nest.map_structure(
            lambda leaf: None if leaf is None else tf.gather(leaf, indices), columns
        )
        return rows if source is None else (*source.gather(indices), *rows[2:])

    return gather


def _rows_for_each_worker() -> tf.data.Options:
    """Each worker takes its own rows of every lot, and its replicas share these.

    `tf.distribute` cuts every batch into pieces, one for each replica, and skips those of
    other workers. Without this policy each worker takes the first piece, of lots that are
    the same on all (`workers.py`): every example would count once for each worker.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return options
