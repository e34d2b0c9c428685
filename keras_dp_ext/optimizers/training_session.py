"""Where a training, or a pass over its data, begins: for lots and for the ledger."""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import FullBatch, Unknown
from keras_dp_ext.accounting.of_model import record_layers_of
from keras_dp_ext.data.sampling.lots import check_shared, sampling_of_lots
from keras_dp_ext.optimizers.another_thread import in_another_thread
from keras_dp_ext.optimizers.lot_size import declared_lot
from keras_dp_ext.optimizers.same_start import begins_with_others, check_same_start
from keras_dp_ext.optimizers.shared_lot import most_releases_per_lot


def begin_session(optimizer: Any, context: FitContext | None) -> None:
    """Notices where another training begins; the former may have been cut off.

    Its data begin with a new lot: together with a part of an old one, each release
    would hold parts of two lots, and an example of both twice. This is so after a
    backup was restored, too: Keras begins the epoch again.

    And the sampling that was recorded was that of the former.

    Within a training it notices where the data begin again.
    """
    # A custom loop has no session: the optimizer itself stands for it.
    session = optimizer if context is None else context.session
    state = optimizer._state
    if optimizer._noise_source.is_inherited:
        in_another_thread(optimizer._noise_source.renew_after_fork)
    former, batches = state.batches, None if context is None else context.batches
    state.batches = None if batches is None else weakref.ref(batches)
    if state.session() is session:
        if former is not None and batches is not None and former() is not batches:
            in_another_thread(lambda: _begin_pass(optimizer, context))
        return
    check_shared(context)
    _check_compilation(context)
    if begins_with_others(_strategy(context)):
        in_another_thread(lambda: check_same_start(optimizer))
    state.session = weakref.ref(session)
    in_another_thread(lambda: _enter_session(optimizer, context, session))


def _strategy(context: FitContext | None) -> tf.distribute.Strategy:
    if context is None:
        return tf.distribute.get_strategy()
    return context.model.distribute_strategy


def _check_compilation(context: FitContext | None) -> None:
    """Refuses XLA on several replicas, which TensorFlow refuses late and in riddles."""
    replicas = _strategy(context).num_replicas_in_sync
    if context is not None and context.model.jit_compile and replicas > 1:
        raise ValueError(
            "TensorFlow cannot compile a training step of Keras on several replicas or "
            'workers. Compile the model with `jit_compile="auto"`. Received: '
            f"jit_compile=True with {replicas} replicas"
        )


def _enter_session(optimizer: Any, context: FitContext | None, session: Any) -> None:
    optimizer._discard_unfinished_lot()
    accounted = optimizer._state.accounted_session
    if accounted is not None and accounted() is session:
        return  # An accountant has done it before the first step.
    if optimizer._state.sampling_is_stated:
        return
    if context is not None and not context.is_single_batch:
        _record_fit(optimizer, context)
    elif not optimizer.ledger.segments:
        optimizer._open_segment(Unknown(), context)
    elif accounted is not None:
        # Batches that are handed over one by one: each may hold every example.
        optimizer._open_segment(FullBatch(), context)


def _begin_pass(optimizer: Any, context: FitContext) -> None:
    """The data begin again: the former pass may have been cut short.

    By a callback that ends an epoch and lets `fit` go on, say. An example of the former
    pass can then come again at once: nothing of the former pass may be in the next lot,
    and what was released counts as a pass of its own.
    """
    ledger = optimizer.ledger
    if context.sampling is None or not ledger.segments:
        return
    last = ledger.segments[-1]
    if isinstance(last.sampling, Unknown):
        return
    optimizer._discard_unfinished_lot()
    optimizer._spending.open_segment(last.claim, last.sampling)
    was_cut = ledger.segments[-1] is not last
    if was_cut and optimizer._state.claim_observer is not None:
        optimizer._state.claim_observer()


def _record_fit(optimizer: Any, context: FitContext) -> None:
    """Records a `fit` that no accountant watches, as far as it can be seen."""
    accumulation = optimizer.gradient_accumulation_steps or 1
    try:
        sampling = sampling_of_lots(context, accumulation)
    except ValueError as error:
        sampling = Unknown()
        if optimizer._state.first_time("unknown sampling"):
            warnings.warn(
                f"This training cannot be accounted for. {error} Or call "
                "`optimizer.ledger.declare(sampling)` afterwards.",
                stacklevel=2,
            )
    known = optimizer.ledger.caveats()
    optimizer._open_segment(sampling, context)
    for caveat in optimizer.ledger.caveats():
        if caveat not in known:
            warnings.warn(caveat, stacklevel=2)
    record_layers_of(context.model, context.data)


def refuse_two_at_once(
    accounted: weakref.ref | None, context: FitContext | None
) -> None:
    """Raises if another `fit` of the same optimizer has not ended yet.

    One counter counts the releases of both: which of them saw which lots is unknown.
    """
    former = None if accounted is None else accounted()
    if context is None or context.is_single_batch or former in (None, context.session):
        return
    if keras_internals.is_running(former):
        raise ValueError(
            "Two `fit` calls train with one optimizer at the same time, and which "
            "release belongs to which cannot be known. Let one end before the other "
            "begins, or give each its own model and optimizer."
        )


class GuardedTrainFunction:
    """Takes the place of `model.train_function`.

    The update is divided by the public batch size, a constant of the traced graph.
    Keras keeps that graph for the next `fit`, which may have another `batch_size`,
    and for every `train_on_batch`: both would be divided by a number that is not
    theirs. The optimizers are also told where another training begins.

    And releases are counted: a step that makes more of them on one lot than were seen
    when it was traced (a `tf.function` that is called twice) costs more than is known.

    Args:
        function: Keras' own training function.
        model: The model that it trains.
    """

    def __init__(self, function: Callable, model: keras.Model):
        self.function = function
        self._model = weakref.ref(model)
        self._guarded: list[_Guarded] = []
        self._checked = lambda: None
        self._calls = 1  # The one under way.

    def add(self, optimizer: Any, lot: int | None, unit: tuple[str, int]) -> None:
        """Guards the updates of one more optimizer, for this `lot` and `unit`."""
        self._guarded = [g for g in self._guarded if g.optimizer() is not optimizer]
        count = in_another_thread(lambda: optimizer._spending.executed)
        self._guarded.append(
            _Guarded(weakref.ref(optimizer), lot, count, self._calls, unit)
        )

    def __call__(self, iterator: Any) -> Any:
        self._calls += 1
        # One iterator is one epoch or one batch: look no more often than that.
        if self._checked() is iterator:
            return self.function(iterator)
        self.check_counts(finished=self._calls - 1)
        model = self._model()
        for guarded in self._guarded:
            optimizer = guarded.optimizer()
            context = find_fit(optimizer)
            begin_session(optimizer, context)
            is_other_lot = declared_lot(optimizer, context) not in (None, guarded.lot)
            if is_other_lot or _unit_of(context) != guarded.unit:
                model.make_train_function(force=True)
                return model.train_function(iterator)
        self._checked = weakref.ref(iterator)
        return self.function(iterator)

    def check_counts(self, finished: int | None = None) -> None:
        """Raises if there were more releases than the traced steps have."""
        finished = self._calls if finished is None else finished
        model = self._model()
        steps = getattr(model, "steps_per_execution", 1) or 1
        for guarded in self._guarded:
            optimizer = guarded.optimizer()
            lots = (finished - guarded.first_call + 1) * steps
            seen = optimizer._spending.executed - guarded.releases
            known = most_releases_per_lot(optimizer)
            most = -(-lots * known // optimizer._accumulation_steps)
            if seen <= most:
                continue
            # Nothing is known of them but their number.
            optimizer.ledger.add(optimizer._own_claim(), FullBatch(), seen)
            raise ValueError(
                f"The training step released {seen} updates on {lots} batches, where "
                f"at most {most} were seen when it was traced: a private update runs "
                "inside of a `tf.function` that is called several times on one batch. "
                "Call it once for each batch, or make the inner function a plain "
                "Python function. The releases were recorded without amplification."
            )


@dataclasses.dataclass(frozen=True)
class _Guarded:
    """One optimizer, as it was when its update was traced.

    Attributes:
        optimizer: Refers to it.
        lot: The public lot size that is part of the trace.
        releases: Its counter then.
        first_call: The number of the call in which it was traced.
        unit: What a microbatch is in the trace, and how many rows it has.
    """

    optimizer: Callable[[], Any]
    lot: int | None
    releases: int
    first_call: int
    unit: tuple[str, int]


def _unit_of(context: FitContext | None) -> tuple[str, int]:
    return ("example", 1) if context is None else (context.unit, context.rows_per_unit)


def guard_train_function(optimizer: Any, context: FitContext | None) -> None:
    """Guards the training function of `fit` that is being traced."""
    if context is None:
        return
    model = context.model

    def guarded(function: Callable[..., Any]) -> Any:
        if isinstance(function, GuardedTrainFunction):
            return function
        return GuardedTrainFunction(function, model)

    guard: Any = keras_internals.replace_train_function(model, guarded)
    if guard is not None:
        guard.add(optimizer, declared_lot(optimizer, context), _unit_of(context))


def check_release_counts(model: keras.Model | None) -> None:
    """At the end of a training: see `GuardedTrainFunction.check_counts`."""
    function = getattr(model, "train_function", None)
    if isinstance(function, GuardedTrainFunction):
        function.check_counts()
