"""Where one training ends and the next begins, for lots and for the ledger."""

from __future__ import annotations

import concurrent.futures
import weakref
from typing import Any

from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import FullBatch
from keras_dp_ext.optimizers.lot_size import declared_lot


def begin_session(optimizer: Any, context: FitContext | None) -> None:
    """Notices where another training begins; the former may have been cut off.

    Its data begin with a new lot: together with a part of an old one, each release
    would hold parts of two lots, and an example of both twice. This is so after a
    backup was restored, too: Keras begins the epoch again.

    And the sampling that an accountant has recorded was that of the former.
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
        thread.submit(_leave_former_session, optimizer, session).result()


def _leave_former_session(optimizer: Any, session: Any) -> None:
    optimizer._discard_unfinished_lot()
    accounted = optimizer._state.accounted_session
    if accounted is not None and accounted() is not session:
        optimizer.open_segment(FullBatch())


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
