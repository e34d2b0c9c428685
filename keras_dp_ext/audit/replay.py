"""One run of a training under observation, with noise and sampling frozen."""

from __future__ import annotations

import collections
import contextlib
import gc
import random
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.accounting.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    Shuffled,
)
from keras_dp_ext.audit.release_tape import ReleaseTape
from keras_dp_ext.data.layers.private_pca import PrivatePCA
from keras_dp_ext.data.sampling import pipeline
from keras_dp_ext.optimizers.noise_source import NoiseSource
from keras_dp_ext.optimizers.private_optimizer import PrivateOptimizer


class Replay:
    """Runs a training and keeps all that could tell about an example.

    Frozen are the noise, the lots that `keras_dp_ext.data` draws, and all generators
    that are seeded by default: NumPy's, Python's, Keras' and TensorFlow's. A run that
    `follows` another gets the same lots, and the data's last row as one example
    more in each of them (in each pass, where data is shuffled), in the place of
    padding.

    Args:
        seed: Of everything.
        max_releases: The most releases of one optimizer.
        follows: The run without the example, or `None`.
        joins: Whether the data has one example more than that of the run it follows.
        rows: How many rows that example has: more than one, if it is a person.
    """

    def __init__(
        self,
        seed: int,
        max_releases: int,
        follows: Replay | None = None,
        joins: bool = False,
        rows: int = 1,
    ):
        self._seed = seed
        self._max_releases = max_releases
        self._follows = follows
        self._joins = joins
        self._rows = rows
        self.tapes: list[ReleaseTape] = []
        self.returned: Any = None
        self.error: Exception | None = None
        self._refusal: ValueError | None = None
        self.values: dict[tuple, tuple[str, np.ndarray]] = {}
        self.lots = 0.0
        self.all_lots_masked = True
        self.pipelines = 0
        self.adapted: list[list[np.ndarray]] = []
        self._indices: dict[tuple[int, int], list[np.ndarray]] = {}
        self._variables: list[Any] = []
        self._metric_variables: list[Any] = []
        self._keys = 0
        self._generators = 0

    def run(self, train: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> Replay:
        """Trains, and reads off what is left behind. Its errors are kept in `error`."""
        keras.utils.set_random_seed(self._seed)
        random.seed(self._seed)
        with contextlib.ExitStack() as stack:
            for patch in self._patches():
                stack.enter_context(patch)
            try:
                self.returned = train(*arrays)
            except Exception as error:
                if self._refusal is not None:
                    raise self._refusal from error
                self.error = error
                return self
        self.values = self._read_values()
        return self

    # What is frozen and watched -------------------------------------------

    def _patches(self) -> Iterator[Any]:
        yield _wrapped(PrivateOptimizer, "build", self._build)
        yield _wrapped(NoiseSource, "_new_key", self._new_key)
        yield _wrapped(pipeline, "batches_from_indices", self._batches_from_indices)
        yield _wrapped(PrivatePCA, "adapt", self._adapt)
        yield _wrapped(np.random, "default_rng", self._default_rng)
        yield _wrapped(keras.metrics.Metric, "add_variable", self._add_metric_variable)
        yield _wrapped(
            tf_internals.resource_variable_class(), "__init__", self._init_variable
        )

    def _build(
        self, original: Callable[..., Any], optimizer: Any, variables: Sequence[Any]
    ) -> None:
        original(optimizer, variables)
        if any(tape.optimizer is optimizer for tape in self.tapes):
            return
        before = self._follows.tapes if self._follows else []
        follows = before[len(self.tapes)] if len(self.tapes) < len(before) else None
        self.tapes.append(ReleaseTape(optimizer, self._max_releases, follows))

    def _new_key(self, original: Callable[..., Any], source: Any) -> Any:
        if source._seed is not None:
            return original(source)  # Its own, which may repeat: that is a finding.
        shape = original(source).shape
        self._keys += 1
        key = np.random.SeedSequence([self._seed, self._keys])
        return key.generate_state(int(np.prod(shape))).view(np.int32).reshape(shape)

    def _default_rng(self, original: Callable[..., Any], seed: Any = None) -> Any:
        if seed is None:
            self._generators += 1
            seed = [self._seed, self._generators]
        return original(seed)

    def _add_metric_variable(
        self, original: Callable[..., Any], metric: Any, *args: Any, **kwargs: Any
    ) -> Any:
        variable = original(metric, *args, **kwargs)
        self._metric_variables.append(variable)
        return variable

    def _init_variable(
        self, original: Callable[..., Any], variable: Any, *args: Any, **kwargs: Any
    ) -> None:
        original(variable, *args, **kwargs)
        self._variables.append(weakref.ref(variable))

    def _adapt(
        self,
        original: Callable[..., Any],
        layer: keras.layers.Layer,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """A release beside the optimizers': recorded, and repeated, as those are."""
        original(layer, *args, **kwargs)
        number = len(self.adapted)
        self.adapted.append([variable.numpy() for variable in layer.variables])
        if self._follows is not None and number < len(self._follows.adapted):
            theirs = self._follows.adapted[number]
            for variable, value in zip(layer.variables, theirs, strict=True):
                variable.assign(value)

    # Lots --------------------------------------------------------------------

    def _batches_from_indices(
        self,
        original: Callable[..., Any],
        source: Any,
        x: Any,
        *args: Any,
        masked: bool,
        **kwargs: Any,
    ) -> Any:
        number = self.pipelines
        self.pipelines += 1
        self.all_lots_masked = self.all_lots_masked and masked
        num_examples = len(tf.nest.flatten(x)[0])
        epochs = iter(range(2**31))

        def coupled(_: Any) -> Any:
            key = (number, next(epochs))
            self._indices[key] = self._lots_of_epoch(
                source, key, num_examples, label=dataset.dp_sampling
            )
            yield from self._indices[key]

        dataset = original(coupled, x, *args, masked=masked, **kwargs)

        def count() -> None:
            self.lots += 1 / dataset.dp_sampling.accumulation_steps

        def counted(*batch: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(count, [], [])]):
                return tf.nest.map_structure(
                    lambda leaf: None if leaf is None else tf.identity(leaf), batch
                )

        # Behind the prefetching: what was drawn and never used does not count.
        dataset = dataset.map(counted)
        return dataset

    def _lots_of_epoch(
        self, source: Any, key: tf.Tensor, num_examples: int, label: Any
    ) -> list[np.ndarray]:
        random_lots = np.random.Generator(np.random.PCG64([self._seed, *key]))
        known = self._follows and self._follows._indices.get(key)
        if not known:
            return [block.copy() for block in source(random_lots)]
        if not self._joins:
            return known
        former = num_examples - self._rows
        lots = np.concatenate(known)
        if lots.shape != np.concatenate(list(source(random_lots))).shape:
            # TensorFlow makes an error of its own of what is raised in a pipeline.
            self._refusal = ValueError(
                "Argument `data` must have another number of rows: one more changes "
                "the number or the size of the lots, which the analysis takes for "
                f"public. Received: data with {former} rows"
            )
            raise self._refusal
        lots = np.where(lots == former, num_examples, lots)
        # One group is what the example is in once: a lot, or a whole pass.
        groups = lots.reshape([-1, label.accumulation_steps * lots.shape[1]])
        if isinstance(label.sampling, CyclicPoisson):
            # The example is in the first group, whose turn comes once in a cycle.
            groups = groups[:: label.sampling.cycle]
        if isinstance(label.sampling, (BallsInBins, FixedOrder, Shuffled)):
            groups = lots.reshape([1, -1])
        # A person has a few rows side by side, and none of another person's.
        each = label.rows_per_unit
        added = np.full([each], num_examples)
        added[: self._rows] = former + np.arange(min(each, self._rows))
        for group in groups:
            slots = group.reshape([-1, each])
            free = np.flatnonzero((slots == num_examples).all(axis=1))
            if isinstance(label.sampling, FixedOrder):
                slots[free[:1]] = added  # The same place in each pass.
            elif free.size:
                slots[random_lots.choice(free)] = added
        return [lots]

    # What is left behind -----------------------------------------------------

    def _read_values(self) -> dict[tuple, tuple[str, np.ndarray]]:
        """All variables that outlived the training, by name and number.

        Without tapes, and without metrics, which are exact, as the documentation
        says.
        """
        gc.collect()
        hidden = [*self._metric_variables]
        for tape in self.tapes:
            hidden += [*tape.variables, *tape.optimizer._state.unsaved]
        hidden_ids = {id(getattr(variable, "value", variable)) for variable in hidden}
        names = {
            id(getattr(variable, "value", variable)): variable.path
            for part in keras.tree.flatten(self.returned)
            if isinstance(part, keras.Model)
            for variable in [*part.variables, *_variables_of_optimizer(part)]
        }
        values = {}
        numbers: collections.Counter = collections.Counter()
        for reference in self._variables:
            variable = reference()
            if variable is None or id(variable) in hidden_ids:
                continue
            name = names.get(id(variable), variable.name)
            # Layers are numbered through, from one run to the next.
            kind = (re.sub(r"_\d+\b", "", name), variable.shape, variable.dtype)
            numbers[kind] += 1
            with contextlib.suppress(tf.errors.OpError):
                key = (*kind, numbers[kind])
                values[key] = (name, variable.numpy())
        return values


def _wrapped(owner: Any, name: str, wrapper: Callable[..., Any]) -> Any:
    """Lets all calls of `owner.name` pass through `wrapper(original, ...)`."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> tf.Tensor:
        return wrapper(original, *args, **kwargs)

    return mock.patch.object(owner, name, call)


def _variables_of_optimizer(model: keras.Model) -> list[Any]:
    return getattr(getattr(model, "optimizer", None), "variables", [])
