"""Recognises plain tf.data pipelines, in which each example occurs once in a pass.

`from_tensor_slices(...)`, any number of `map`, `cache`, `shuffle`, `prefetch`, then
`batch`, and behind it `map`, `prefetch`, `cache`, `repeat`: nothing else is believed.
What a pipeline of another kind yields (a generator, `sample_from_datasets`, `repeat` in
front of `batch`) cannot be read off it, and a guess would be called proven.
"""

from __future__ import annotations

import dataclasses
import re
import weakref
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_datasets
from keras_dp_ext.data.sampling.row_check import check_rows
from keras_dp_ext.data.sampling.table_lookups import looks_examples_up

# Each hands on every element once, or leaves some out.
_ONE_TO_ONE = frozenset(
    {
        "CacheDataset",
        "_MapDataset",
        "_OptionsDataset",
        "_ParallelMapDataset",
        "_PrefetchDataset",
    }
)
_SHORTER = frozenset(
    {"_AssertCardinalityDataset", "_ShardDataset", "_SkipDataset", "_TakeDataset"}
)
_BATCH = frozenset({"_BatchDataset", "_ParallelBatchDataset"})


@dataclasses.dataclass(frozen=True)
class PlainPipeline:
    """What is known of a plain pipeline.

    Attributes:
        num_examples: How many examples it begins with.
        batch_size: Rows of a full batch.
        pass_length: In this many batches one after the other, counted from the
            beginning, each example occurs at most once.
    """

    num_examples: int
    batch_size: int
    pass_length: int


class NotPlainError(ValueError):
    """Says which part of a pipeline is not known to keep examples apart."""


# Functions of `map` are run to check them: once for a pipeline.
_KNOWN: weakref.WeakKeyDictionary[tf.data.Dataset, PlainPipeline] = (
    weakref.WeakKeyDictionary()
)


def read_plain(dataset: tf.data.Dataset) -> PlainPipeline:
    """Reads a pipeline from its end to its beginning.

    Raises:
        NotPlainError: If any part of it is not one of those known.
        ValueError: If a function of `map` mixes the rows of a batch.
    """
    if dataset not in _KNOWN:
        # Also while a training step is traced: what is asked for here is known now.
        with tf.init_scope():
            _KNOWN[dataset] = _read(dataset)
    return _KNOWN[dataset]


def _read(dataset: tf.data.Dataset) -> PlainPipeline:
    steps: list[tf.data.Dataset] = []
    source = dataset
    while tf_datasets.dataset_kind(source) not in _BATCH:
        if tf_datasets.dataset_kind(source) == "_TensorDataset":
            # `from_tensors(whole)`: one batch, which is the data set.
            return _behind_batch(source, steps, _rows_of(source), _rows_of(source), 1)
        steps.append(source)
        source = _before(source, _ONE_TO_ONE | _SHORTER | _BEHIND_BATCH)
    batch_size = tf_datasets.last_batching(source)[0]
    length = int(source.cardinality())
    num_examples = _examples_before(source)
    return _behind_batch(source, steps, num_examples, batch_size, length)


_BEHIND_BATCH = frozenset({"_RepeatDataset", "_ShuffleDataset"})


def _behind_batch(
    source: Any,
    steps: list[Any],
    num_examples: int,
    batch_size: int,
    length: int | None,
) -> PlainPipeline:
    """Follows the transformations of batches, from `batch` on to the end."""
    if length < 1 or num_examples < 1:
        raise NotPlainError("the number of its batches is not known")
    repeated, functions = False, []
    for step in reversed(steps):
        kind = tf_datasets.dataset_kind(step)
        if kind in _SHORTER and not tf_datasets.asserts_what_is_known(step):
            # Behind `repeat` a pass may begin anywhere.
            length = 1 if repeated else max(1, int(step.cardinality()))
        elif kind == "_RepeatDataset":
            repeated = True
        elif kind == "_ShuffleDataset" and repeated:
            raise NotPlainError("`shuffle` behind `repeat` mixes the passes")
        functions += _functions_of(step, num_examples)
    if functions:
        check_rows(functions, _with_rows(source.element_spec, batch_size), False)
    return PlainPipeline(num_examples, batch_size, length)


def _examples_before(batch: tf.data.Dataset) -> int:
    """The number of examples that a `batch` is fed with, each once."""
    source = _before(batch, _BATCH)
    allowed = _ONE_TO_ONE | _SHORTER | {"_ShuffleDataset"}
    while tf_datasets.dataset_kind(source) not in (
        "_TensorSliceDataset",
        "_ZipDataset",
    ):
        following, source = source, _before(source, allowed)
        _functions_of(following, int(source.cardinality()))
    if tf_datasets.dataset_kind(source) == "_ZipDataset":
        return _zipped(source)
    return int(source.cardinality())


def _zipped(dataset: tf.data.Dataset) -> int:
    """Columns of one table: none of them shuffled or shifted."""
    sizes = set()
    for source in tf_datasets.dataset_inputs(dataset):
        while tf_datasets.dataset_kind(source) != "_TensorSliceDataset":
            following, source = source, _before(source, _ONE_TO_ONE)
            _functions_of(following, int(source.cardinality()))
        sizes.add(int(source.cardinality()))
    if len(sizes) != 1:
        raise NotPlainError("`zip` puts data of different lengths together")
    return sizes.pop()


def _functions_of(step: tf.data.Dataset, num_elements: int) -> list[Any]:
    functions = tf_datasets.dataset_functions(step)
    for function in functions:
        reason = looks_examples_up(function, num_elements)
        if reason:
            raise NotPlainError(f"a function of `{name_of(step)}` {reason}")
    return functions


def _before(dataset: tf.data.Dataset, allowed: frozenset[str] | set[str]) -> Any:
    sources = tf_datasets.dataset_inputs(dataset)
    if tf_datasets.dataset_kind(dataset) not in allowed or len(sources) != 1:
        raise NotPlainError(f"it is not known what `{name_of(dataset)}` yields here")
    return sources[0]


def name_of(dataset: tf.data.Dataset) -> str:
    """What a user calls a transformation: `_ParallelMapDataset` is `map`."""
    name = tf_datasets.dataset_kind(dataset).removeprefix("_").removeprefix("Parallel")
    name = re.sub(r"Dataset(V\d)?$", "", name)
    known = {
        "DirectedInterleave": "sample_from_datasets",
        "FlatMap": "flat_map",
        "Restructured": "unbatch",
        "TensorSlice": "from_tensor_slices",
        "Tensor": "from_tensors",
    }
    return known.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _rows_of(dataset: tf.data.Dataset) -> int:
    specs = tf.nest.flatten(dataset.element_spec)
    return next((spec.shape[0] for spec in specs if spec.shape.rank), None) or 0


def _with_rows(element_spec: Any, batch_size: int) -> Any:
    """The spec of a full batch; sizes that are not known are set to a small one."""

    def full(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
            return spec
        sizes = [3 if size is None else size for size in spec.shape[1:]]
        return tf.TensorSpec([batch_size, *sizes], spec.dtype)

    return tf.nest.map_structure(full, element_spec)
