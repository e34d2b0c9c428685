"""Keras' training function, which notices where another training begins."""

from __future__ import annotations

import weakref
from typing import Any

from keras_dp_ext._fit_context import FitContext, find_fit


class BatchSizeGuard:
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

    @staticmethod
    def install(optimizer: Any, context: FitContext, lot: int | None) -> None:
        """Guards the training function that is being traced, for this `lot`."""
        model = context.model
        function = model.train_function
        if function is None:
            return
        if isinstance(function, BatchSizeGuard):
            function = function._function
        model.train_function = BatchSizeGuard(function, optimizer, model, lot)

    def __call__(self, iterator):
        # One iterator is one epoch or one batch: look no more often than that.
        if self._checked() is iterator:
            return self._function(iterator)
        optimizer, model = self._optimizer(), self._model()
        context = find_fit(optimizer)
        optimizer.begin_session(context)
        if optimizer.public_lot(context) not in (None, self._lot):
            model.make_train_function(force=True)
            return model.train_function(iterator)
        self._checked = weakref.ref(iterator)
        return self._function(iterator)
