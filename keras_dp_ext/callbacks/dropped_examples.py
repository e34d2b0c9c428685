"""Counts what a private step had to leave out."""

from __future__ import annotations

import warnings
from typing import Any

import keras


class DroppedExamples(keras.callbacks.Callback):
    """Logs how many examples had no finite gradient and so counted as zero.

    NaN, infinity or an overflow in one example never reaches the weights: its
    gradient is replaced by zero, silently, because how often that happens is a fact
    about the private data. This callback tells it all the same, to those who may see
    the data: as `dropped` in the logs of every epoch, and by a warning. NOT private:
    never publish it.

    With microbatches of several examples, microbatches are counted.

    Example:

    >>> import numpy as np
    >>> import keras_dp_ext as dp
    >>> x = np.ones([8, 3], "float32")
    >>> x[5, 0] = np.nan
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model.compile(dp.optimizers.DPSGD(), "mse")
    >>> dropped = DroppedExamples()
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     history = model.fit(x, x[:, :1], 4, verbose=0, callbacks=[dropped])
    >>> dropped.total
    1
    """

    def __init__(self) -> None:
        super().__init__()
        #: How many have been dropped since the training began.
        self.total = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if not hasattr(optimizer, "_count_dropped"):
            raise ValueError(
                "DroppedExamples needs a private optimizer of keras_dp_ext. "
                f"Received: optimizer={optimizer}"
            )
        with self.model.distribute_strategy.scope():
            self._counter = optimizer._count_dropped()
        self._before = int(self._counter.numpy())
        self.total = 0
        # Counting is part of the step, which may have been traced without it.
        self.model.make_train_function(force=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        total = int(self._counter.numpy()) - self._before
        dropped, self.total = total - self.total, total
        if logs is not None:
            logs["dropped"] = dropped
        if dropped:
            warnings.warn(
                f"{dropped} gradients of epoch {epoch + 1} were not finite and counted "
                "as zero. Look for NaN, infinity or huge numbers in the data, or for "
                "an unstable model. (This count is not private.)",
                stacklevel=2,
            )
