"""What makes a Keras optimizer private: Keras' optimizer protocol and config."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_dp_ext._checks import check_count
from keras_dp_ext._compat import keras_internals, keras_workers, tf_internals
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import FullBatch
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.optimizers.accounted_optimizer import AccountedOptimizer
from keras_dp_ext.optimizers.base_update import BaseUpdate
from keras_dp_ext.optimizers.cut_batches import CutBatches
from keras_dp_ext.optimizers.eager_step import eager_step
from keras_dp_ext.optimizers.errors import no_losses_error, no_weights_error
from keras_dp_ext.optimizers.fixed_arguments import FixedArguments
from keras_dp_ext.optimizers.noise_source import NoiseSource
from keras_dp_ext.optimizers.optimizer_variables import OptimizerVariables
from keras_dp_ext.optimizers.private_step import (
    trace_function,
    trace_step,
    trace_step_on_loss,
)
from keras_dp_ext.optimizers.release import Release
from keras_dp_ext.optimizers.rows_at_a_time import StopAtLossError, rows_under_way
from keras_dp_ext.optimizers.saved_optimizer import SavedOptimizer
from keras_dp_ext.optimizers.shared_lot import check_only_release
from keras_dp_ext.optimizers.spending import Spending
from keras_dp_ext.optimizers.state import PendingLoss, TrainingState, Untracked
from keras_dp_ext.optimizers.training_session import check_release_counts


class PrivateOptimizer(
    FixedArguments,
    OptimizerVariables,
    AccountedOptimizer,
    SavedOptimizer,
    CutBatches,
    BaseUpdate,
):
    """Mixin that goes in front of a Keras optimizer class.

    Keras' training step calls `scale_loss` with the loss and then
    `apply_gradients`, both while one graph is traced. The first keeps the loss,
    the second ignores the gradients that Keras computed (they are pruned away),
    reads the per-example gradients off the graph, and hands the bounded, summed,
    noised and averaged gradient to the base class.

    Do not use it directly: see `make_private`.
    """

    mechanism_class: ClassVar[type[Mechanism]]
    base_class: ClassVar[type[keras.optimizers.Optimizer]]

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        num_microbatches: int | None,
        gradient_accumulation_steps: int | None,
        expected_batch_size: int | None,
        noise_seed: int | None,
        secure_noise: bool = False,
        chunk_bytes: int | None = None,
        physical_batch_size: int | None = None,
        memory_limit: int | str | None = None,
        **base_arguments: Any,
    ):
        for name, count in (
            ("num_microbatches", num_microbatches),
            ("gradient_accumulation_steps", gradient_accumulation_steps),
            ("expected_batch_size", expected_batch_size),
            ("chunk_bytes", chunk_bytes),
            ("physical_batch_size", physical_batch_size),
        ):
            if count is not None:
                check_count(name, count)
        if base_arguments.get("loss_scale_factor") is not None:
            raise ValueError(
                "Argument `loss_scale_factor` must be None: gradients are bounded "
                "in float32 and need no scaling. Received: loss_scale_factor="
                f"{base_arguments['loss_scale_factor']}"
            )
        keras_workers.mend_fit()
        super().__init__(**base_arguments)
        self.mechanism = mechanism
        self.num_microbatches = num_microbatches
        self.expected_batch_size = expected_batch_size
        self.noise_seed = noise_seed
        self.secure_noise = bool(secure_noise)
        self.chunk_bytes = chunk_bytes
        self._let_batches_be_cut(physical_batch_size, memory_limit)
        self._accumulation_steps = gradient_accumulation_steps or 1
        noise_source = NoiseSource(noise_seed, self.secure_noise)
        spending = Spending(self.name, noise_source)
        self._parts = Untracked(
            _Parts(
                noise_source,
                spending,
                Release(
                    mechanism,
                    noise_source,
                    spending.releases,
                    spending.run_start,
                    self._accumulation_steps,
                    self.secure_noise,
                ),
            )
        )
        # Tracked by TensorFlow, which saves and restores counter and ledger by it.
        self._spent_budget = spending.trackable()
        self._constructed = True

    @property
    def _noise_source(self) -> NoiseSource:
        return self._parts.value.noise_source

    @property
    def _spending(self) -> Spending:  # type: ignore[override]
        return self._parts.value.spending

    @property
    def _release(self) -> Release:  # type: ignore[override]
        return self._parts.value.release

    @property
    def _state(self) -> TrainingState:  # type: ignore[override]
        return self._parts.value.state

    # Keras' protocol ------------------------------------------------------

    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Keeps the loss for `apply_gradients`; part of Keras' training step."""
        if not tf_internals.is_symbolic(loss):
            raise ValueError(
                f"{type(self).__name__} reads per-example gradients off the traced "
                "graph, and there is none with `run_eagerly=True`. Compile the "
                "model without it, or write the loop with "
                "`optimizer.minimize(losses, variables, tape=tape)`."
            )
        context = find_fit(self)
        rows = rows_under_way(self)
        if rows is not None and not rows.fits:
            if rows.forward_only:
                rows.loss = loss
                raise StopAtLossError
            if context is not None:
                context = dataclasses.replace(context, step_data=rows.data)
        model = self._watched_model(context)
        if model is not None:
            self._state.trained_model = weakref.ref(model)
            self._stay_compiled()
        if model is not None and not model.trainable_weights:
            raise no_weights_error()
        pending = self._state.pending_loss
        if pending is not None and pending.loss.graph is loss.graph:
            raise ValueError(
                "`scale_loss` was called twice before `apply_gradients`, which would "
                "use the last loss only: pass the sum of the losses, once. Received: "
                f"loss={loss} after {pending.loss}"
            )
        self._state.keep_loss(PendingLoss(loss, context))
        # The gradient of what is returned is zero: no path leads from here to a
        # gradient that is not private.
        return tf.stop_gradient(loss)

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        """Applies one private update; the gradients that are passed are ignored."""
        variables = [variable for _, variable in grads_and_vars]
        pending = self._state.take_pending_loss()
        graph = tf.compat.v1.get_default_graph()
        if pending is None or pending.loss.graph is not graph:
            raise self._no_losses_error()
        with tf_internals.without_autograph():
            trace_step_on_loss(self, pending.loss, variables, pending.context)
        return keras_internals.update_counter(self)

    def apply(
        self, grads: Any, trainable_variables: Sequence[Any] | None = None
    ) -> Any:
        """As `apply_gradients`, in the form that Keras 3's guides use."""
        if trainable_variables is None:
            raise ValueError(
                "Argument `trainable_variables` must be given. Received: None"
            )
        return self.apply_gradients(zip(grads, trainable_variables, strict=True))

    def _no_losses_error(self) -> ValueError:
        context = find_fit(self)
        return no_losses_error(self, None if context is None else context.model)

    def minimize(
        self,
        loss: tf.Tensor | Callable[[], tf.Tensor],
        var_list: Sequence | None = None,
        grad_loss: Any = None,
        name: str | None = None,
        tape: tf.GradientTape | None = None,
    ) -> None:
        """Takes one private step on a vector of per-example losses.

        Args:
            loss: `[batch]` losses, or a function of no arguments that returns them.
                Multiply them by the sample weights, if the data have padding. Outside
                of a `tf.function` losses need a `tape`, and a function is traced anew
                in every call, so that it always sees the data that it reads at that
                moment. Both are slow: call `minimize` in a `tf.function` that takes
                the data as its arguments, as below.
            var_list: The trainable variables.
            grad_loss: Must be `None`; present for compatibility.
            name: Ignored; present for compatibility.
            tape: Outside of a `tf.function`, the tape that recorded `loss`.

        Example:

        >>> import keras, tensorflow as tf, keras_dp_ext as dp
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> optimizer = dp.optimizers.DPSGD(learning_rate=0.1)
        >>> x, y = tf.ones([8, 3]), tf.ones([8, 1])
        >>> @tf.function
        ... def step(x, y):
        ...     losses = keras.losses.mean_squared_error(y, model(x))
        ...     optimizer.minimize(losses, model.trainable_variables)
        >>> step(x, y)
        >>> int(optimizer.releases)
        1
        """
        del name
        if grad_loss is not None:
            raise ValueError(
                "Argument `grad_loss` must be None: scale the losses instead. "
                f"Received: grad_loss={grad_loss}"
            )
        if var_list is None:
            raise ValueError("Argument `var_list` must be given. Received: None")
        variables = list(var_list)
        context = find_fit(self)
        if tf.executing_eagerly():
            check_only_release(context)
        if callable(loss):
            if tf.executing_eagerly():
                trace_function(self, loss, variables, context)
                return
            loss = loss()
        loss = tf.convert_to_tensor(loss)
        if loss.shape.rank != 1:
            raise ValueError(
                "Argument `loss` must be a vector with one loss for each example "
                "(e.g. from a loss with `reduction=None`). Received: loss of shape "
                f"{loss.shape}"
            )
        if tf.executing_eagerly():
            eager_step(self, loss, variables, tape, context)
            return
        with tf_internals.without_autograph():
            trace_step(self, tf.cast(loss, tf.float32), [], variables, context)

    def bind(self, model: keras.Model) -> None:
        """Names the model that is trained, for checks of its other weights.

        `model.fit` needs no such call. In a custom loop it tells metrics, which
        may depend on the data, from weights, which may not.
        """
        self._state.bound_model = model

    @property
    def iterations(self) -> Any:
        """The number of updates. Each is one release, also with accumulation."""
        return keras_internals.update_counter(self)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Ends a training: the sums of an unfinished lot are thrown away.

        They are not noised, and would be saved with the model.
        """
        super().finalize_variable_values(var_list)
        self._discard_unfinished_lot()
        context = find_fit(self)
        if self.built and self.ledger.segments and not self._state.sampling_is_stated:
            # What follows may be drawn in another way: it counts in full.
            self._open_segment(FullBatch(), context)
        check_release_counts(None if context is None else context.model)

    def _discard_unfinished_lot(self) -> None:
        self._release.discard_unfinished_lot()

    # What the step needs to know --------------------------------------------

    def _watched_model(self, context: FitContext | None) -> keras.Model | None:
        if self._state.bound_model is not None:
            return self._state.bound_model
        return None if context is None else context.model

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for key in ("loss_scale_factor", "gradient_accumulation_steps"):
            config.pop(key, None)
        return {
            **config,
            **self.mechanism.get_config(),
            "num_microbatches": self.num_microbatches,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            "expected_batch_size": self.expected_batch_size,
            "noise_seed": self.noise_seed,
            "secure_noise": self.secure_noise,
            "chunk_bytes": self.chunk_bytes,
            "physical_batch_size": self.physical_batch_size,
            "memory_limit": self.memory_limit,
        }


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a private optimizer is made of, hidden from Keras' tracking."""

    noise_source: NoiseSource
    spending: Spending
    release: Release
    state: TrainingState = dataclasses.field(default_factory=TrainingState)
