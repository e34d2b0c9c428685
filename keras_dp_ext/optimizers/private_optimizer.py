"""What makes a Keras optimizer private: the only code that knows both worlds."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import Claim, FullBatch, Ledger, Sampling
from keras_dp_ext.gradients import MaterializedGradients, per_example_gradients
from keras_dp_ext.gradients.losses import separate
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.noise import secure, uniform
from keras_dp_ext.optimizers.batch_size_guard import BatchSizeGuard
from keras_dp_ext.optimizers.noise_source import NoiseSource
from keras_dp_ext.optimizers.spent_budget import SpentBudget
from keras_dp_ext.verification.probe import Probe
from keras_dp_ext.verification.state_guard import check_state_updates

_LEDGER_KEY = "privacy_ledger"
_RELEASES_KEY = "privacy_releases"

# Constants of the traced step and terms of the claim: both must stay the same.
_FIXED_ONCE_BUILT = frozenset(
    {
        "mechanism",
        "num_microbatches",
        "expected_batch_size",
        "noise_seed",
        "secure_noise",
    }
)

_SEED_CAVEAT = (
    "The noise is reproducible (`noise_seed`): there is no privacy at all against "
    "whoever knows or guesses the seed, which is also written into saved models. "
    "Train with `noise_seed=None`."
)


class PrivateOptimizer:
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
        **base_arguments: Any,
    ):
        _check_count("num_microbatches", num_microbatches, 1)
        _check_count("gradient_accumulation_steps", gradient_accumulation_steps, 1)
        _check_count("expected_batch_size", expected_batch_size, 1)
        if base_arguments.get("loss_scale_factor") is not None:
            raise ValueError(
                "Argument `loss_scale_factor` must be None: gradients are bounded "
                "in float32 and need no scaling. Received: loss_scale_factor="
                f"{base_arguments['loss_scale_factor']}"
            )
        super().__init__(**base_arguments)
        self.mechanism = mechanism
        self.num_microbatches = num_microbatches
        self.expected_batch_size = expected_batch_size
        self.noise_seed = noise_seed
        self.secure_noise = bool(secure_noise)
        self._accumulation_steps = gradient_accumulation_steps or 1
        self._noise_source = _Untracked(NoiseSource(noise_seed, self.secure_noise))
        self._pending = _Untracked(threading.local())
        self._bound_model = _Untracked(None)
        self._verified = _Untracked(set())
        self._unsaved = _Untracked([])
        self._dropped = _Untracked(None)
        self._taken_over = _Untracked([])
        # A custom loop has no session: the optimizer itself stands for it.
        self._session = _Untracked(weakref.ref(self))
        self._session_of_segment = _Untracked(None)
        self._examples_per_microbatch: int | None = None
        # Not by `add_variable`: a checkpoint must not set the counter back.
        with keras.name_scope(self.name):
            counter = keras.Variable(
                0,
                dtype="int64",
                trainable=False,
                aggregation="only_first_replica",
                name="releases",
            )
        self._releases = _Untracked(counter)
        self._ledger_text = _Untracked(Ledger().to_json())
        # Tracked by TensorFlow under this name, in place of the two above.
        self._spent_budget = SpentBudget(self._read_spent, self._restore_spent)
        self._constructed = True

    # Keras' protocol ------------------------------------------------------

    def scale_loss(self, loss):
        """Keeps the loss for `apply_gradients`; part of Keras' training step."""
        if not _is_symbolic(loss):
            raise ValueError(
                f"{type(self).__name__} reads per-example gradients off the traced "
                "graph, and there is none with `run_eagerly=True`. Compile the "
                "model without it, or write the loop with "
                "`optimizer.minimize(losses, variables, tape=tape)`."
            )
        model = self._watched_model()
        if model is not None and not model.trainable_weights:
            raise _no_weights()
        pending = getattr(self._pending.value, "loss", None)
        if pending is not None and pending.graph is loss.graph:
            raise ValueError(
                "`scale_loss` was called twice before `apply_gradients`, which would "
                "use the last loss only: pass the sum of the losses, once. Received: "
                f"loss={loss} after {pending}"
            )
        self._pending.value.loss = loss
        # Whoever differentiates what is returned gets nothing: no path leads
        # from here to a gradient that is not private.
        return tf.stop_gradient(loss)

    def apply_gradients(self, grads_and_vars):
        """Applies one private update; the gradients that are passed are ignored."""
        variables = [variable for _, variable in grads_and_vars]
        loss = getattr(self._pending.value, "loss", None)
        self._pending.value.loss = None
        if loss is None:
            raise _no_losses(self)
        if loss.graph is not tf.compat.v1.get_default_graph():
            raise _no_losses(self)
        with self._without_autograph():
            separated = separate(loss)
            self._step(separated.per_example, separated.data_independent, variables)
        return self._iterations

    def apply(self, grads, trainable_variables=None):
        """Refused: a gradient without per-example losses cannot be made private."""
        raise _no_losses(self)

    def minimize(
        self,
        loss: tf.Tensor | Callable[[], tf.Tensor],
        var_list: Sequence | None = None,
        grad_loss=None,
        name: str | None = None,
        tape: tf.GradientTape | None = None,
    ) -> None:
        """Takes one private step on a vector of per-example losses.

        Args:
            loss: `[batch]` losses, or a function of no arguments that returns
                them. Outside of a `tf.function` the latter is traced anew in
                every call, so that it always sees the data that it reads at that
                moment; losses need a `tape`. Both are slow: call `minimize` in a
                `tf.function` that takes the data as its arguments, as below.
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
        if callable(loss):
            if tf.executing_eagerly():
                self._traced_step(loss, variables)
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
            self._eager_step(loss, variables, tape)
            return
        with self._without_autograph():
            self._step(tf.cast(loss, tf.float32), [], variables)

    def bind(self, model: keras.Model) -> None:
        """Names the model that is trained, for checks of its other weights.

        `model.fit` needs no such call. In a custom loop it tells metrics, which
        may depend on the data, from weights, which may not.
        """
        self._bound_model.value = model

    def build(self, variables):
        variables = list(variables)
        if not variables:
            raise _no_weights()
        for variable in variables:
            if getattr(variable, "overwrite_with_gradient", False):
                raise ValueError(
                    "float8 training overwrites weights with statistics of the "
                    f"data and cannot be private. Received: {variable.path}"
                )
        self._warn_of_former_training(variables)
        super().build(variables)
        self.mechanism.build(variables, self._add_mechanism_variable)
        self.mechanism.freeze()
        self._micro_step = None
        if self._accumulation_steps > 1:
            self._micro_step = self._add_mechanism_variable(
                shape=(), dtype="int64", name="micro_step", initializer="zeros"
            )
            self._lot = [
                self._add_mechanism_variable(
                    shape=variable.shape,
                    dtype="float32",
                    name="lot_accumulator",
                    initializer="zeros",
                )
                for variable in variables
            ]

    def _warn_of_former_training(self, variables):
        """Another private optimizer's releases are in another ledger."""
        for former in {
            id(former): former
            for former in (getattr(v, "_private_training", None) for v in variables)
            if former is not None
            and not any(former is own for own in self._own_counters())
        }.values():
            with tf.init_scope():
                count = int(former.value.numpy())
            if count:
                warnings.warn(
                    f"These weights were trained by another private optimizer with "
                    f"{count} releases, which are not in this one's ledger. If both "
                    "saw the same data, their epsilons add up: keep the former "
                    "optimizer, call `take_over(former)`, or account with "
                    "`Ledger.merge`.",
                    stacklevel=2,
                )
        for variable in variables:
            variable._private_training = self._releases

    def _own_counters(self):
        return [self._releases, *self._taken_over.value]

    def _add_mechanism_variable(
        self, shape, dtype, name, initializer="zeros", saved=True
    ):
        arguments = {
            "shape": shape,
            "dtype": dtype,
            "name": name,
            "initializer": initializer,
            "aggregation": "only_first_replica",
        }
        if saved:
            return self.add_variable(**arguments)
        variable = keras.Variable(trainable=False, **arguments)
        self._unsaved.value.append(variable)
        return variable

    def count_dropped(self) -> keras.Variable:
        """Makes every step that is traced from now on count the rows that it drops.

        See `keras_dp_ext.callbacks.DroppedExamples`. The count is NOT private.

        Returns:
            The counter. It is not saved.
        """
        if self._dropped.value is None:
            self._dropped.value = keras.Variable(
                0,
                dtype="int64",
                trainable=False,
                synchronization="on_read",
                aggregation="sum",
                name="dropped",
            )
            self._unsaved.value.append(self._dropped.value)
        return self._dropped.value

    @property
    def iterations(self):
        """The number of updates. Each is one release, also with accumulation."""
        return self._iterations

    @property
    def gradient_accumulation_steps(self) -> int | None:
        """Batches that make up one lot, or `None` for one."""
        if self._accumulation_steps_hidden or self._accumulation_steps == 1:
            return None
        return self._accumulation_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value):
        # Set by the base class, which must not accumulate by itself.
        assert value is None

    _accumulation_steps = 1
    _accumulation_steps_hidden = False

    def __setattr__(self, name, value):
        if name == "loss_scale_factor" and self._constructed:
            # What LossScaleOptimizer does when it takes an optimizer over.
            raise ValueError(
                f"{type(self).__name__} cannot be wrapped in LossScaleOptimizer, "
                "which skips updates depending on the data. With the mixed_float16 "
                "policy, call `model.compile(..., auto_scale_loss=False)`, or use "
                "mixed_bfloat16, which needs no scaling. Received: "
                f"loss_scale_factor={value}"
            )
        if name in _FIXED_ONCE_BUILT and self._constructed and self.built:
            raise ValueError(
                f"`{name}` must not change once the optimizer is built: training "
                "goes on with the old value while epsilon is computed for the new "
                "one. Make a new optimizer, and call its `take_over` with this one. "
                f"Received: {name}={value}"
            )
        super().__setattr__(name, value)

    _constructed = False

    def finalize_variable_values(self, var_list):
        """Ends a training: the sums of an unfinished lot are thrown away.

        They are not noised, and would be saved with the model.
        """
        super().finalize_variable_values(var_list)
        self.discard_unfinished_lot()

    def discard_unfinished_lot(self) -> None:
        """Forgets the batches of a lot that is not complete, if there are any."""
        if self.built and self._micro_step is not None:
            self._micro_step.assign(0)
            for accumulator in self._lot:
                accumulator.assign(tf.zeros(accumulator.shape))

    def begin_session(self, context: FitContext | None) -> None:
        """Notices where another training begins; the former may have been cut off.

        Its data begin with a new lot: together with a part of an old one, each
        release would hold parts of two lots, and an example of both twice. This is
        so after a backup was restored, too: Keras begins the epoch again.

        And the sampling that an accountant has recorded was that of the former.
        """
        session = self if context is None else context.session
        if self._session.value() is session:
            return
        self._session.value = weakref.ref(session)
        # In a thread of its own, as this may be called while a graph is traced, by
        # one of several replicas.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(self._leave_session, session).result()

    def _leave_session(self, session) -> None:
        self.discard_unfinished_lot()
        accounted = self._session_of_segment.value
        if accounted is not None and accounted() is not session:
            self.open_segment(FullBatch())

    # The private step -----------------------------------------------------

    def _traced_step(self, loss_function, variables):
        """Eager mode with a function: traced in every call, never a former one.

        What a function reads (a global, an attribute, the next batch of an
        iterator) may change without any sign that could be seen from here.
        """
        self._ensure_built(variables)

        @tf.function
        def step():
            self.minimize(loss_function(), variables)

        step()

    def _eager_step(self, losses, variables, tape):
        """Eager mode with a tape: every row by a backward pass through all of them."""
        if tape is None:
            raise ValueError(
                "Argument `tape` is needed for losses that were computed eagerly. Pass "
                "the tape that recorded them, or call `minimize` in a tf.function. "
                f"Received: tape={tape}"
            )
        if not self.__dict__.setdefault("_warned_of_eager_mode", False):
            self._warned_of_eager_mode = True
            warnings.warn(
                "Losses that were computed eagerly leave no graph behind, so it "
                "cannot be verified that the model treats every example by itself "
                "(BatchNormalization does not), and each step costs O(batch^2). Call "
                "`minimize` in a tf.function instead.",
                stacklevel=3,
            )
        self._ensure_built(variables)
        self.begin_session(find_fit(self))
        self._warn_of_reproducible_noise()
        group = self._group_size(losses)
        with tape:
            rows = tf.reduce_mean(
                tf.reshape(tf.cast(losses, tf.float32), [-1, group]), axis=1
            )
        values = [getattr(variable, "value", variable) for variable in variables]
        jacobian = tape.jacobian(
            rows, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        if not all(bool(tf.reduce_all(tf.math.is_finite(j))) for j in jacobian):
            # The rows pass through one another's zeros: 0 * NaN is NaN in all of them.
            raise ValueError(
                "A gradient is not finite, and in eager mode one such example would "
                "erase all others from the sum. Nothing was released. Call `minimize` "
                "in a tf.function, where it counts as zero by itself."
            )
        sums = self.mechanism.bound(MaterializedGradients(jacobian))
        self._release_across_replicas(
            sums, [], variables, self._expected_rows(losses, group)
        )

    def _step(self, losses, data_independent, variables):
        """Traces one private update into the default graph."""
        self._ensure_built(variables)
        if not _all_initialized(variables):
            # TensorFlow traces a function that creates variables twice, and runs
            # only the second trace. Nothing may be updated by this one.
            with tf.control_dependencies(
                [tf.debugging.Assert(False, ["This trace must not run."])]
            ):
                return
        self.begin_session(find_fit(self))
        self._warn_of_reproducible_noise()
        penalties = _penalty_gradients(data_independent, variables)
        guard = check_state_updates(
            losses,
            self._watched_model(),
            own=[*self.variables, self.releases, *self._unsaved.value],
        )
        group = self._group_size(losses)
        gradients = per_example_gradients(losses, variables, group)
        Probe(losses, variables, gradients, group, self._verified.value).verify()
        sums = self.mechanism.bound(gradients)
        if self._dropped.value is not None:
            dropped = tf.logical_not(gradients.finite_rows())
            self._dropped.value.assign_add(tf.math.count_nonzero(dropped))
        self._release_across_replicas(
            sums, penalties, variables, self._expected_rows(losses, group)
        )
        guard.finish()

    def _release_across_replicas(self, sums, penalties, variables, expected_rows):
        """Sums over replicas, then releases once for all of them."""
        strategy = tf.distribute.get_strategy()
        context = tf.distribute.get_replica_context()
        if strategy.num_replicas_in_sync == 1 or context is None:
            self._accumulate_and_release(sums, penalties, variables, expected_rows)
            return
        first = tf.equal(context.replica_id_in_sync_group, 0)
        # Noise joins on one replica only: after the reduction there is one draw,
        # the same on all replicas and workers, whatever the distribution.
        noise = self._noise_if_due([value.shape for value in sums])
        noised = [
            tf.cast(value, extra.dtype) + tf.where(first, extra, tf.zeros_like(extra))
            for value, extra in zip(sums, noise, strict=True)
        ]
        totals = _all_reduced(context, noised)

        def release(distribution, totals, penalties):
            local = [_first_local(distribution, value) for value in totals]
            local_penalties = [_first_local(distribution, v) for v in penalties]
            self._accumulate_and_release(
                local, local_penalties, variables, expected_rows, noised=True
            )

        tf.__internal__.distribute.interim.maybe_merge_call(
            release, strategy, totals, penalties
        )

    def _is_due(self) -> tf.Tensor:
        """Whether the batch under way completes a lot."""
        if self._accumulation_steps == 1:
            return tf.constant(True)
        step = tf.convert_to_tensor(self._micro_step)
        return tf.equal(step % self._accumulation_steps, self._accumulation_steps - 1)

    def _noise_if_due(self, shapes):
        step = tf.convert_to_tensor(self.releases)
        source = self._noise_source.value
        if self.secure_noise:
            noise = self._draw_secure(secure.stream(source.key()), shapes, step)
        else:
            noise = self.mechanism.draw_noise(shapes, source.seed(), step)
        if self._accumulation_steps == 1:
            return noise
        due = self._is_due()
        return [tf.where(due, value, tf.zeros_like(value)) for value in noise]

    def _draw_secure(self, words, shapes, step):
        """A draw of the mechanism in float64, from the given source of words."""
        with uniform.drawing_from(words):
            noise = self.mechanism.draw_noise(
                shapes, self._noise_source.value.seed(), step
            )
        if any(value.dtype != tf.float64 for value in noise):
            raise ValueError(
                "Argument `secure_noise` needs a mechanism that draws from "
                "`keras_dp_ext.noise` in its precision. Received: "
                f"{type(self.mechanism).__name__} with noise of "
                f"{[value.dtype.name for value in noise]}"
            )
        return noise

    def _accumulate_and_release(
        self, sums, penalties, variables, expected_rows, noised=False
    ):
        if not noised:
            noise = self._noise_if_due([value.shape for value in sums])
            sums = [
                tf.cast(total, extra.dtype) + extra
                for total, extra in zip(sums, noise, strict=True)
            ]
        if self._accumulation_steps == 1:
            self._release(sums, penalties, variables, expected_rows)
            return
        index = {self._var_key(v): i for i, v in enumerate(self._trainable_variables)}
        lot = [self._lot[index[self._var_key(variable)]] for variable in variables]
        totals = [
            tf.cast(value, total.dtype) + total
            for value, total in zip(lot, sums, strict=True)
        ]

        def finish():
            self._release(totals, penalties, variables, expected_rows)
            for accumulator in lot:
                accumulator.assign(tf.zeros(accumulator.shape))
            return tf.constant(0)

        def keep():
            for accumulator, value in zip(lot, totals, strict=True):
                accumulator.assign(tf.cast(value, tf.float32))
            return tf.constant(0)

        tf.cond(self._is_due(), finish, keep)
        self._micro_step.assign_add(1)

    def _release(self, noised, penalties, variables, expected_rows):
        """Refines what has been noised and hands it to the base optimizer."""
        step = tf.convert_to_tensor(self.releases)
        if self.secure_noise:
            shapes = [value.shape for value in noised]
            scales = self._draw_secure(secure.middle, shapes, step)
            noised = [secure.snap(*pair) for pair in zip(noised, scales, strict=True)]
        refined = self.mechanism.refine(noised, step)
        averages = [value / expected_rows for value in refined]
        if penalties:
            averages = [a + b for a, b in zip(averages, penalties, strict=True)]
        averages = [
            tf.cast(value, variable.dtype)
            for value, variable in zip(averages, variables, strict=True)
        ]
        self._noise_source.value.advance()
        self.releases.assign_add(1)
        self._accumulation_steps_hidden = True
        try:
            super().apply(averages, variables)
        finally:
            self._accumulation_steps_hidden = False

    # Keras' own update, called across replicas ------------------------------

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Nothing to reduce: what was released is the same on all replicas."""
        return list(grads_and_vars)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if tf.distribute.get_replica_context() is not None:
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        values = [getattr(v, "value", v) for v in trainable_variables]
        self._distributed_tf_update_step(
            tf.distribute.get_strategy(),
            list(zip(grads, values, strict=True)),
            learning_rate,
        )

    def _apply_weight_decay(self, variables):
        if tf.distribute.get_replica_context() is not None:
            super()._apply_weight_decay(variables)
            return
        if self.weight_decay is None:
            return
        factor = self.learning_rate * self.weight_decay

        def decay(value):
            if self._use_weight_decay(value):
                value.assign_sub(value * tf.cast(factor, value.dtype))

        for variable in variables:
            tf.distribute.get_strategy().extended.update(
                getattr(variable, "value", variable), decay, group=False
            )

    # What the step needs to know --------------------------------------------

    def _ensure_built(self, variables):
        if not self.built:
            with tf.name_scope(self.name):
                self.build(variables)
            self.built = True
        self._check_variables_are_known(variables)

    def _watched_model(self):
        if self._bound_model.value is not None:
            return self._bound_model.value
        context = find_fit(self)
        return None if context is None else context.model

    def _group_size(self, losses) -> int:
        """Examples per microbatch."""
        if self.num_microbatches is None:
            return 1
        batch = losses.shape[0]
        if batch is not None:
            batch *= tf.distribute.get_strategy().num_replicas_in_sync
        else:
            context = find_fit(self)
            batch = context and context.batch_size
        if batch is None:
            raise ValueError(
                "Argument `num_microbatches` needs batches of a known size: use "
                "`dataset.batch(n, drop_remainder=True)`. Received: "
                f"num_microbatches={self.num_microbatches} and losses of shape "
                f"{losses.shape}"
            )
        if batch % self.num_microbatches:
            raise ValueError(
                "Argument `num_microbatches` must divide the batch. Received: "
                f"num_microbatches={self.num_microbatches} for {batch} examples"
            )
        group = batch // self.num_microbatches
        if self._examples_per_microbatch not in (None, group):
            raise ValueError(
                "The number of examples per microbatch changes, and with it the "
                "sensitivity. Received: microbatches of "
                f"{self._examples_per_microbatch} and then of {group} examples"
            )
        self._examples_per_microbatch = group
        return group

    def _expected_rows(self, losses, group: int) -> float:
        """The public number of microbatches of a release: what sums are divided by.

        Never the realised number, which depends on who is in the data.
        """
        context = find_fit(self)
        if context is not None and context.accumulation_steps not in (
            None,
            self._accumulation_steps,
        ):
            raise ValueError(
                "The data pipeline spreads a lot over a different number of batches "
                "than the optimizer accumulates. Received: "
                f"accumulation_steps={context.accumulation_steps} in the data and "
                f"gradient_accumulation_steps={self._accumulation_steps}"
            )
        lot = self.public_lot(context)
        if context is not None:
            BatchSizeGuard.install(self, context, lot)
        if lot is None and losses.shape[0] is not None:
            lot = losses.shape[0] * self._accumulation_steps
            lot *= tf.distribute.get_strategy().num_replicas_in_sync
            self._check_same_lot(lot)
        if lot is None:
            raise ValueError(
                "Argument `expected_batch_size` is needed where the batch size is "
                "not known beforehand. Received: expected_batch_size=None and "
                f"losses of shape {losses.shape}"
            )
        return lot / group

    def public_lot(self, context) -> int | None:
        """Examples of one release, as far as `fit` or the user told; or `None`."""
        if self.expected_batch_size is not None:
            return self.expected_batch_size
        if context is None or context.batch_size is None:
            return None
        lot = context.batch_size
        if context.accumulation_steps is None:
            lot *= self._accumulation_steps
        if context.is_single_batch:
            self._check_same_lot(lot)
        return lot

    def _check_same_lot(self, lot: int) -> None:
        """A size that was only seen, not declared, is public if it is constant."""
        first = self.__dict__.setdefault("_first_lot", lot)
        if first != lot:
            raise ValueError(
                "The batch size changes, so the expected one must be said: "
                "dividing by the realised size would reveal it. Pass "
                f"`expected_batch_size`. Received: {first} and then {lot}"
            )

    @contextlib.contextmanager
    def _without_autograph(self):
        """AutoGraph must not rewrite the engine's Python control flow."""
        with _no_conversion():
            yield

    # Accounting ------------------------------------------------------------

    def privacy_claim(self) -> Claim:
        """What one release costs: proven, and as published."""
        if not self.built:
            raise ValueError(
                "The optimizer does not know the model yet. Call "
                "`optimizer.build(model.trainable_variables)` first."
            )
        parameters = sum(
            int(np.prod(variable.shape)) for variable in self._trainable_variables
        )
        claim = self.mechanism.claim(parameters, self._claimed_group())
        if self.noise_seed is None:
            return claim
        caveat = " ".join(filter(None, [claim.caveat, _SEED_CAVEAT]))
        return dataclasses.replace(claim, caveat=caveat)

    def _warn_of_reproducible_noise(self):
        """Once; an accountant that has warned already is enough."""
        warned = self.__dict__.setdefault("_warned_of_reproducible_noise", False)
        if self.noise_seed is None or warned:
            return
        self._warned_of_reproducible_noise = True
        if not any(_SEED_CAVEAT in caveat for caveat in self.ledger.caveats()):
            warnings.warn(_SEED_CAVEAT, stacklevel=2)

    def _claimed_group(self) -> int:
        """Examples per microbatch, as far as is known; several when in doubt."""
        if self.num_microbatches is None:
            return 1
        if self._examples_per_microbatch is None:
            context = find_fit(self)
            if context is not None and context.batch_size == self.num_microbatches:
                self._examples_per_microbatch = 1
        return self._examples_per_microbatch or 2

    @property
    def releases(self):
        """Number of noised updates ever applied; an int64 Keras variable."""
        return self._releases.value

    @property
    def ledger(self) -> Ledger:
        """What has been released on the data, as recorded by the callback."""
        return Ledger.from_json(self._ledger_text.value)

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._ledger_text.value = ledger.to_json()

    def open_segment(self, sampling: Sampling) -> None:
        """Records mechanism and sampling for all releases from now on."""
        ledger = self.ledger
        ledger.open(int(self.releases.numpy()), self.privacy_claim(), sampling)
        self.ledger = ledger
        context = find_fit(self)
        self._session_of_segment.value = context and weakref.ref(context.session)

    def take_over(self, former: PrivateOptimizer) -> None:
        """Counts the releases of an optimizer that this one replaces as its own.

        To go on with other noise, or another learning rule:

        >>> import keras, keras_dp_ext as dp
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
        >>> quieter = dp.optimizers.DPSGD(noise_multiplier=1.0)
        >>> quieter.take_over(model.optimizer)
        >>> model.compile(quieter, loss="mse")
        """
        if int(self.releases.numpy()):
            raise ValueError(
                "`take_over` must be called before this optimizer has trained. "
                f"Received: {int(self.releases.numpy())} releases of its own"
            )
        self._restore_spent(*former._read_spent())
        self._taken_over.value += former._own_counters()

    # Saving ------------------------------------------------------------------

    def get_config(self):
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
        }

    def save_own_variables(self, store):
        saved = {}
        super().save_own_variables(saved)
        if self.built and self._micro_step is not None and not _is_backup():
            # The sums of an unfinished lot are not noised: they may be written
            # where training is resumed from, never into a file that is shared.
            unfinished = [self._micro_step, *self._lot]
            for index, variable in enumerate(self.variables):
                if any(variable is other for other in unfinished):
                    saved[str(index)] = np.zeros_like(saved[str(index)])
        releases, text = self._read_spent()
        # With a key of its own: Keras loads no variable at all where their number
        # has changed, e.g. with the base optimizer.
        saved[_RELEASES_KEY] = np.int64(releases)
        saved[_LEDGER_KEY] = np.frombuffer(text.encode(), np.uint8)
        for key, value in saved.items():
            store[key] = value

    def load_own_variables(self, store):
        saved = {key: store[key] for key in store.keys()}  # noqa: SIM118 (h5py)
        text = saved.pop(_LEDGER_KEY, None)
        restored = saved.pop(_RELEASES_KEY, 0)
        super().load_own_variables(saved)
        if text is not None:
            self._restore_spent(
                int(np.asarray(restored)), np.asarray(text).tobytes().decode()
            )

    def _read_spent(self) -> tuple[int, str]:
        return int(self.releases.numpy()), self._ledger_text.value

    def _restore_spent(self, releases: int, ledger_text: str) -> None:
        """Takes over what a checkpoint has spent, beside what is known already."""
        before = self.ledger
        ledger, releases = before.including(
            int(self.releases.numpy()), Ledger.from_json(ledger_text), releases
        )
        if before.segments:
            # What is open now stays open, whatever the checkpoint used.
            now = before.segments[-1]
            ledger.open(releases, now.claim, now.sampling)
        self.releases.assign(releases)
        self.ledger = ledger
        # Old noise on new data would cancel out.
        self._noise_source.value.renew()


class _Untracked:
    """Hides a value from Keras' and TensorFlow's attribute tracking."""

    def __init__(self, value):
        self.value = value


def _is_backup() -> bool:
    """Whether `BackupAndRestore` is saving: to resume from, and deleted afterwards."""
    frame = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.BackupAndRestore):
            return True
        frame = frame.f_back
    return False


def _no_conversion():
    from tensorflow.python.autograph.core import ag_ctx

    return ag_ctx.ControlStatusCtx(status=ag_ctx.Status.DISABLED)


def _is_symbolic(tensor) -> bool:
    return tf.is_tensor(tensor) and not hasattr(tensor, "_numpy")


def _check_count(name: str, value, least: int) -> None:
    if value is not None and (
        isinstance(value, bool) or int(value) != value or value < least
    ):
        raise ValueError(
            f"Argument `{name}` must be an integer of at least {least}, or None. "
            f"Received: {name}={value}"
        )


def _all_initialized(variables) -> bool:
    with tf.init_scope():
        for variable in variables:
            value = getattr(variable, "value", variable)
            if not bool(value.is_initialized()):
                return False
    return True


def _penalty_gradients(data_independent, variables):
    """Gradients of the penalties on the weights: no data, so no noise needed."""
    if not data_independent:
        return []
    values = [getattr(variable, "value", variable) for variable in variables]
    gradients = tf.gradients(
        tf.add_n(data_independent),
        [value.handle for value in values],
        unconnected_gradients="none",
    )
    return [
        tf.zeros(variable.shape)
        if gradient is None
        else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def _all_reduced(context, values: list[tf.Tensor]) -> list[tf.Tensor]:
    """The sums over replicas, by one collective: no order in which two could wait."""
    flat = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
    sizes = [value.shape.num_elements() for value in values]
    return [
        tf.reshape(piece, value.shape)
        for piece, value in zip(tf.split(total, sizes), values, strict=True)
    ]


def _first_local(strategy, value):
    return strategy.experimental_local_results(value)[0]


def _no_weights() -> ValueError:
    return ValueError(
        "The model has no trainable weights, so there is nothing to train. "
        "Received: variables=[]. Build the model, or set "
        "`layer.trainable = True` on some layer."
    )


def _no_losses(optimizer) -> ValueError:
    return ValueError(
        f"{type(optimizer).__name__} needs the loss of each example; gradients of "
        "the whole batch cannot be made private any more. Train with `model.fit` "
        "(not through LossScaleOptimizer: with the mixed_float16 policy, compile "
        "with `auto_scale_loss=False`), or call "
        "`optimizer.minimize(losses, variables)` in the tf.function of a custom loop."
    )
