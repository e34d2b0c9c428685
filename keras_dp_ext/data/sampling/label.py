"""The label that tells the accountant how the batches of a data set were drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_datasets
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    Sampling,
    Shuffled,
)
from keras_dp_ext.data.sampling.plain import name_of
from keras_dp_ext.data.sampling.row_check import check_rows

# Transformations that hand every lot on as it is, or leave whole lots out, and
# that sample afresh when they are iterated again. All others lose the label:
# `cache` repeats old lots, `batch`, `unbatch` and `filter` change what a lot is,
# `zip` and `concatenate` bring in data that nobody sampled.
_TRANSPARENT = frozenset(
    {
        "_MapDataset",
        "_OptionsDataset",
        "_ParallelMapDataset",
        "_PrefetchDataset",
        "_RepeatDataset",
    }
)

# These leave whole lots out only where a lot is one batch. With accumulation the
# optimizer would put parts of two lots together, and an example might be in both.
# Of shuffled data a shorter pass begins the next one earlier.
# Keras ends an epoch where the cardinality says so, with whatever is left.
_WHOLE_BATCHES = frozenset(
    {"_AssertCardinalityDataset", "_SkipDataset", "_TakeDataset"}
)

# Why a transformation behind the sampler loses the label, and what to do.
_REMEDIES = {
    "batch": "changes what a lot is: leave it out",
    "cache": "repeats the lots of the first epoch: put it in front of the sampler, or "
    "leave it out",
    "filter": "changes what a lot is: filter the examples in front of the sampler",
    "shuffle": "is not needed: the sampler draws at random. Leave it out",
    "unbatch": "changes what a lot is: leave it out",
}

_ATTRIBUTE = "dp_sampling"
_CHECKED = "_dp_rows_checked"


@dataclasses.dataclass(frozen=True)
class SamplingLabel:
    """How the lots of a pipeline are drawn.

    Attributes:
        sampling: The scheme, as the accountant understands it.
        num_examples: How many examples the data set has; where the sampling rate is a
            public number, a public bound on it.
        expected_batch_size: The public number of examples in a lot, by which the
            noised sum is divided.
        accumulation_steps: Over how many physical batches one lot is spread; the
            optimizer's `gradient_accumulation_steps` must be the same.
        steps_per_epoch: Number of lots, that is of releases, in an epoch. Keras
            sees `steps_per_epoch * accumulation_steps` batches.
        masked: Whether some rows are padding, which only the sample weight tells
            apart from examples.
        rows_per_unit: How many consecutive rows of a batch belong to one person, where
            `sampling.unit` is "person"; all numbers above count people then.
        is_seeded: Whether lots follow from a seed that the user has passed.
    """

    sampling: Sampling
    num_examples: int
    expected_batch_size: int
    accumulation_steps: int
    steps_per_epoch: int
    masked: bool
    rows_per_unit: int = 1
    is_seeded: bool = False


def attach(dataset: tf.data.Dataset, label: SamplingLabel) -> tf.data.Dataset:
    """Returns `dataset`, labelled."""
    setattr(dataset, _ATTRIBUTE, label)
    return dataset


def sampling_of(dataset: Any) -> SamplingLabel | None:
    """Finds the label of a pipeline made by this package.

    The label survives `map`, `prefetch`, `repeat` and `with_options`, and, where a lot
    is one batch and examples have no places in a pass, `take` and `skip`. Every other
    transformation may change what a lot is, and loses it (see `why_unlabelled`); so does
    a `map` that changes the number of rows. Functions of `map` must transform every row
    by itself: their traced ops are read to see it (`row_check.py`).

    Args:
        dataset: Anything that `model.fit` accepts.

    Returns:
        The label, or `None` when the sampling is not known.

    Raises:
        ValueError: If the batches have lost the sample weight that marks padding, or
            padding has got a weight. An example would then replace a padding row
            instead of joining the sum, which doubles the sensitivity. Also if a
            function of `map` lets rows depend on each other.
    """
    label, _ = _find(dataset)
    return label


def why_unlabelled(dataset: Any) -> str | None:
    """Which transformation has lost the label, and what to do instead.

    Returns:
        `None` if there is a label, or never was one.
    """
    return _find(dataset)[1]


def _find(dataset: Any) -> tuple[SamplingLabel | None, str | None]:
    """The label; or why there is none any more."""
    source, steps = dataset, []
    while not hasattr(source, _ATTRIBUTE):
        kind = tf_datasets.dataset_kind(source)
        if kind not in _TRANSPARENT | _WHOLE_BATCHES:
            return None, _lost_by(source)
        steps.append(source)
        (source,) = tf_datasets.dataset_inputs(source)
    steps.reverse()
    label = _after_cuts(getattr(source, _ATTRIBUTE), steps)
    if label is None:
        return None, (
            "`take`, `skip` or `assert_cardinality` cuts lots that are spread over "
            "several batches, or passes in which examples have their places: pass "
            "`steps_per_epoch` to the sampler or to `fit` instead"
        )
    functions = [f for step in steps for f in tf_datasets.dataset_functions(step)]
    if not _rows(dataset) <= {None, *_rows(source)}:
        # An example that became two rows would count twice. Where the number is not
        # known in advance, `check_rows` finds out.
        return None, "a function of `map` behind the sampler changes the number of rows"
    if label.masked and not _has_weights(dataset.element_spec):
        raise ValueError(
            "Argument `dataset` must yield `(x, y, sample_weight)`: the sample "
            "weight marks the padding, and without it epsilon does not hold. "
            f"Received: dataset.element_spec={dataset.element_spec}"
        )
    if functions and not hasattr(dataset, _CHECKED):
        check_rows(functions, source.element_spec, label.masked)
        setattr(dataset, _CHECKED, True)
    return label, None


def _lost_by(dataset: Any) -> str | None:
    """The transformation next to a sampler that loses its label, if there is one."""
    if not isinstance(dataset, tf.data.Dataset):
        return None
    for source in tf_datasets.dataset_inputs(dataset):
        below = source
        while tf_datasets.dataset_kind(below) in _TRANSPARENT | _WHOLE_BATCHES:
            if hasattr(below, _ATTRIBUTE):
                break
            (below,) = tf_datasets.dataset_inputs(below)
        if hasattr(below, _ATTRIBUTE):
            name = name_of(dataset)
            remedy = _REMEDIES.get(name, "changes what a lot is: leave it out")
            return f"`{name}` behind the sampler {remedy}"
        reason = _lost_by(below)
        if reason:
            return reason
    return None


def _after_cuts(label: SamplingLabel, steps: list[Any]) -> SamplingLabel | None:
    """The label behind `take` and `skip`; `None` where lots are cut apart."""
    repeated = False
    for step in steps:
        kind = type(step).__name__
        repeated = repeated or kind == "_RepeatDataset"
        if kind in _WHOLE_BATCHES and not tf_datasets.asserts_what_is_known(step):
            ordered = isinstance(
                label.sampling, (BallsInBins, CyclicPoisson, FixedOrder)
            )
            if label.accumulation_steps > 1 or ordered:
                return None
            if isinstance(label.sampling, Shuffled):
                # Behind `repeat` a pass may begin anywhere.
                with tf.init_scope():  # Also while a training step is traced.
                    length = 1 if repeated else max(1, int(step.cardinality()))
                sampling = dataclasses.replace(label.sampling, steps_per_epoch=length)
                label = dataclasses.replace(label, sampling=sampling)
    return label


def _rows(dataset: tf.data.Dataset) -> set[int | None]:
    """The numbers of rows of the tensors in a batch: one, if all is well."""
    return {spec.shape[:1].as_list()[0] for spec in _tensor_specs(dataset)}


def _tensor_specs(dataset: tf.data.Dataset) -> list[tf.TensorSpec]:
    leaves = tf.nest.flatten(dataset.element_spec)
    return [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]


def _has_weights(element_spec: Any) -> bool:
    return (
        isinstance(element_spec, tuple)
        and len(element_spec) == 3
        and isinstance(element_spec[2], tf.TensorSpec)
        and element_spec[2].dtype.is_floating
    )
