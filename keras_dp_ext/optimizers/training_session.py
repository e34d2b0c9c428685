"""Where one training ends and the next begins, for lots and for the ledger."""

from __future__ import annotations

import concurrent.futures
import warnings
import weakref
from typing import Any

from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import FullBatch, Unknown
from keras_dp_ext.accounting.of_model import record_layers_of
from keras_dp_ext.data.sampling.lots import sampling_of_lots
from keras_dp_ext.optimizers.lot_size import declared_lot


def begin_session(optimizer: Any, context: FitContext | None) -> None:
    """Notices where another training begins; the former may have been cut off.

    Its data begin with a new lot: together with a part of an old one, each release
    would hold parts of two lots, and an example of both twice. This is so after a
    backup was restored, too: Keras begins the epoch again.

    And the sampling that was recorded was that of the former.
    """
    # A custom loop has no session: the optimizer itself stands for it.
    session = optimizer if context is None else context.session
    state = optimizer._state
    if state.session() is session:
        return
    state.session = weakref.ref(session)
    # In a thread of its own, as this may be called while a graph is traced, by one
    # of several replicas.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(_enter_session, optimizer, context, session).result()


def _enter_session(optimizer: Any, context: FitContext | None, session: Any) -> None:
    optimizer._discard_unfinished_lot()
    accounted = optimizer._state.accounted_session
    if accounted is not None and accounted() is session:
        return  # By an accountant, before the first step.
    if optimizer._state.sampling_is_stated:
        return
    if context is not None and not context.is_single_batch:
        _record_fit(optimizer, context)
    elif not optimizer.ledger.segments:
        optimizer._open_segment(Unknown(), context)
    elif accounted is not None:
        # Batches that are handed over one by one: everybody may be in each of them.
        optimizer._open_segment(FullBatch(), context)


def _record_fit(optimizer: Any, context: FitContext) -> None:
    """Records a `fit` that no accountant watches, as far as it can be seen."""
    accumulation = optimizer.gradient_accumulation_steps or 1
    try:
        sampling = sampling_of_lots(context, accumulation)
    except ValueError as error:
        sampling = Unknown()
        if optimizer._state.first_time("unknown sampling"):
            warnings.warn(
                f"This training cannot be accounted for. {error} Or say afterwards "
                "`optimizer.ledger.declare(sampling)`.",
                stacklevel=2,
            )
    known = optimizer.ledger.caveats()
    optimizer._open_segment(sampling, context)
    for caveat in optimizer.ledger.caveats():
        if caveat not in known:
            warnings.warn(caveat, stacklevel=2)
    record_layers_of(context.model, context.data)


class GuardedTrainFunction:
    """Takes the place of `model.train_function`.

    The update is divided by the public batch size, a constant of the traced graph.
    Keras keeps that graph for the next `fit`, which may have another `batch_size`,
    and for every `train_on_batch`: both would be divided by a number that is not
    theirs. The optimizer is also told where another training begins.
    """

    def __init__(self, function, optimizer, model, lot: int | None):
        self._function = function
        self._optimizer = weakref.ref(optimizer)
        self._model = weakref.ref(model)
        self._lot = lot
        self._checked = lambda: None

    def __call__(self, iterator):
        # One iterator is one epoch or one batch: look no more often than that.
        if self._checked() is iterator:
            return self._function(iterator)
        optimizer, model = self._optimizer(), self._model()
        context = find_fit(optimizer)
        begin_session(optimizer, context)
        if declared_lot(optimizer, context) not in (None, self._lot):
            model.make_train_function(force=True)
            return model.train_function(iterator)
        self._checked = weakref.ref(iterator)
        return self._function(iterator)


def guard_train_function(optimizer: Any, context: FitContext | None) -> None:
    """Guards the training function of `fit` that is being traced."""
    if context is None or context.model.train_function is None:
        return
    model = context.model
    function = model.train_function
    if isinstance(function, GuardedTrainFunction):
        function = function._function
    lot = declared_lot(optimizer, context)
    model.train_function = GuardedTrainFunction(function, optimizer, model, lot)
