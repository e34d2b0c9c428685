"""The part of a private optimizer that lets `fit` process a batch in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_dp_ext._compat import keras_parts
from keras_dp_ext.optimizers import parts
from keras_dp_ext.optimizers.rows_at_a_time import bytes_of, rows_under_way


class CutBatches:
    """Mixin of `PrivateOptimizer`: `physical_batch_size` and `memory_limit`."""

    num_microbatches: int | None
    physical_batch_size: int | None
    memory_limit: int | str | None

    def _let_batches_be_cut(
        self, physical_batch_size: int | None, memory_limit: int | str | None
    ) -> None:
        """Checks both arguments, and makes Keras ask for parts if there is one."""
        self.physical_batch_size = physical_batch_size
        self.memory_limit = memory_limit
        if physical_batch_size is None and memory_limit is None:
            return
        if None not in (physical_batch_size, memory_limit):
            raise ValueError(
                "Pass `physical_batch_size`, the number of rows to work on at a time, "
                "or a `memory_limit` from which it follows, not both. Received: "
                f"physical_batch_size={physical_batch_size}, "
                f"memory_limit={memory_limit}"
            )
        if self.num_microbatches is not None:
            raise ValueError(
                "Argument `num_microbatches` must be None where batches are cut into "
                "parts, which would cut microbatches. Received: num_microbatches="
                f"{self.num_microbatches}"
            )
        if memory_limit is not None:
            bytes_of(memory_limit)
        keras_parts.let_optimizers_cut_batches()

    def _step_in_parts(self, model: keras.Model, data: Any, step: Callable) -> Any:
        """Keras' `train_step`, for as many rows at a time as were asked for."""
        asked_for = self.physical_batch_size or self.memory_limit
        if asked_for is None or rows_under_way(self) is not None:
            return step(model, data)
        return parts.train_step(model, data, step)
