"""Parts of tf.data that are not public; as `tf_internals.py` for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat.versions import check_versions, incompatible, require

check_versions()


def dataset_inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """What a data set is made from. Relies on `Dataset._inputs` (2.16)."""
    return list(require(dataset, "_inputs")())


def dataset_functions(dataset: tf.data.Dataset) -> list[Any]:
    """The traced functions of `map`, `filter` and their like.

    Relies on `Dataset._functions` and the `function` of what it returns (2.16).
    """
    return [require(one, "function") for one in require(dataset, "_functions")()]


def dataset_python_functions(dataset: tf.data.Dataset) -> list[Callable]:
    """The same as they were written. Relies on their `_func` (2.16)."""
    return [require(one, "_func") for one in require(dataset, "_functions")()]


def dataset_kind(dataset: tf.data.Dataset) -> str:
    """Which transformation made a data set: the name of its class, which is private.

    Who asks must treat a name that it does not know as the worst case.
    """
    return type(dataset).__name__


def asserts_what_is_known(dataset: tf.data.Dataset) -> bool:
    """Whether a data set is one with an asserted cardinality that is the known one.

    Keras ends an epoch after as many batches as are asserted, be there more of them.
    """
    if dataset_kind(dataset) != "_AssertCardinalityDataset":
        return False
    (source,) = dataset_inputs(dataset)
    with tf.init_scope():  # Also while a training step is traced.
        return int(dataset.cardinality()) == int(source.cardinality())


def is_repeated(dataset: tf.data.Dataset) -> bool:
    """Whether `repeat` occurs in the making of a data set."""
    # Outside of the step that is being traced: XLA compiles no data sets.
    with tf.init_scope():
        repeated = type(tf.data.Dataset.range(1).repeat(2))
        taken = type(tf.data.Dataset.range(1).take(1))
    if repeated is taken:
        raise incompatible("`Dataset.repeat` has no class of its own any more")
    return isinstance(dataset, repeated) or any(
        is_repeated(source) for source in dataset_inputs(dataset)
    )


def joins_one_source_twice(dataset: tf.data.Dataset) -> bool:
    """Whether elements of one data set come by two ways, as in `d.concatenate(d.map(f))`.

    Not by `zip`, which makes one element of them.
    """
    inputs = dataset_inputs(dataset)
    if dataset_kind(dataset) != "_ZipDataset":
        seen: set[int] = set()
        for source in inputs:
            sources = set(_all_sources(source))
            if seen & sources:
                return True
            seen |= sources
    return any(map(joins_one_source_twice, inputs))


def _all_sources(dataset: tf.data.Dataset) -> Iterator[int]:
    yield id(dataset)
    for source in dataset_inputs(dataset):
        yield from _all_sources(source)


def last_batching(dataset: tf.data.Dataset) -> tuple[int, tf.data.Dataset] | None:
    """The `n` of the last `.batch(n)`, if it is a constant, and what was batched.

    Relies on `_batch_size` of what `batch` returns (2.16).
    """
    with tf.init_scope():
        batched = tf.data.Dataset.range(1).batch(1)
    if not hasattr(batched, "_batch_size"):
        raise incompatible("What `Dataset.batch` returns has no `_batch_size`")
    pending = [dataset]
    while pending:
        source = pending.pop()
        size = getattr(source, "_batch_size", None)
        value = None if size is None else tf.get_static_value(size)
        if value is not None:
            (batched,) = dataset_inputs(source)
            return int(value), batched
        pending.extend(dataset_inputs(source))
    return None
