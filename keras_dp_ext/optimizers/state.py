"""What a private optimizer remembers besides its variables, in one object."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._fit_context import FitContext


@dataclasses.dataclass(frozen=True)
class PendingLoss:
    """What `scale_loss` keeps for `apply_gradients`: the loss, and where it was met."""

    loss: tf.Tensor
    context: FitContext | None


@dataclasses.dataclass
class TrainingState:
    """State that is neither saved nor tracked by Keras.

    Attributes:
        pending: The loss between `scale_loss` and `apply_gradients`; one for each
            thread, as replicas are traced in threads of their own.
        bound_model: The model that `bind` named.
        trained_model: Refers to the model that was trained last.
        unsaved: Variables that must not be saved with the optimizer.
        dropped: Counter of rows that were not finite, where they are counted.
        session: Refers to the training under way; see `TrainingSession`.
        batches: Refers to the iterator of the pass under way, once there is one.
        accounted_session: Refers to the training whose sampling is in the ledger.
        sampling_is_stated: Whether the segment under way was opened by hand, outside
            of a training.
        seen_lot: The lot size that was seen first, where none was declared.
        examples_per_microbatch: What `num_microbatches` means for these data.
        warned: Which warnings were given already.
        claim_observer: Called when the claim of the open segment has changed.
        former_counters: Release counters of the optimizers that this one continues.
    """

    pending: threading.local = dataclasses.field(default_factory=threading.local)
    bound_model: keras.Model | None = None
    trained_model: Callable[[], keras.Model | None] = lambda: None
    unsaved: list[keras.Variable] = dataclasses.field(default_factory=list)
    dropped: keras.Variable | None = None
    session: Callable[[], Any] = lambda: None
    batches: weakref.ref | None = None
    accounted_session: weakref.ref | None = None
    sampling_is_stated: bool = False
    seen_lot: int | None = None
    examples_per_microbatch: int | None = None
    warned: set[str] = dataclasses.field(default_factory=set)
    claim_observer: Callable[[], None] | None = None
    former_counters: list[keras.Variable] = dataclasses.field(default_factory=list)

    @property
    def pending_loss(self) -> PendingLoss | None:
        return getattr(self.pending, "loss", None)

    def keep_loss(self, loss: PendingLoss) -> None:
        self.pending.loss = loss

    def take_pending_loss(self) -> PendingLoss | None:
        """The loss that was kept; it is handed out once."""
        loss = self.pending_loss
        self.pending.loss = None
        return loss

    def first_time(self, warning: str) -> bool:
        """Whether `warning` has not been given yet; from now on it has."""
        if warning in self.warned:
            return False
        self.warned.add(warning)
        return True


class Untracked:
    """Hides a value from Keras' and TensorFlow's attribute tracking."""

    def __init__(self, value: Any):
        self.value = value
