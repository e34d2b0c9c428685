"""The callback that shows epsilon during training and stops within a budget."""

from __future__ import annotations

import math
import warnings
from typing import Any

import keras

from keras_dp_ext._build_model import build_model
from keras_dp_ext._checks import check_count, check_in, check_one_of
from keras_dp_ext._compat import keras_internals
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import accountants, calibration
from keras_dp_ext.accounting.best_attack import BestAttack, best_attack
from keras_dp_ext.accounting.default_delta import default_delta, warn_of_large_delta
from keras_dp_ext.accounting.figures import figure_entries, figure_epsilon
from keras_dp_ext.accounting.ledger import Ledger, stated_sampling
from keras_dp_ext.accounting.of_model import (
    entries_of,
    private_optimizer_of,
    record_layers_of,
)
from keras_dp_ext.accounting.records import LedgerEntry
from keras_dp_ext.accounting.sampling import FullBatch, Sampling
from keras_dp_ext.callbacks import acting_on_data, hints, last_settings, statement
from keras_dp_ext.callbacks.live_epsilon import LiveEpsilon
from keras_dp_ext.data.sampling.lots import sampling_of_lots


class PrivacyAccountant(keras.callbacks.Callback):
    """Accounts for the privacy that a training spends.

    At the end of every epoch `logs["epsilon"]` is the epsilon proven for all that
    the optimizer has released on the data so far, in this and in earlier `fit`
    calls. It shows in the progress bar, `History`, `CSVLogger` and `TensorBoard`,
    and `ModelCheckpoint` and `EarlyStopping` can monitor it, whatever the order of
    the callbacks. Mechanisms whose paper claims something else also get
    `logs["published_epsilon"]`.

    Args:
        num_examples: Size of the training set. Found in `fit` where `x` is an
            array or a pipeline of `keras_dp_ext.data`.
        batch_size: Examples in a batch; found likewise.
        delta: Target delta. By default the greatest power of ten strictly below
            `1 / num_examples`.
        target_epsilon: If given, training stops before the release that would
            exceed it, in the middle of an epoch if need be.
        accountant: "rdp" for any noise, or "pld", which is tighter, for Gaussian
            noise.
        sampling: How batches are drawn, for a generator, a `PyDataset` or a pipeline
            of your own: a `keras_dp_ext.accounting.Sampling` that describes one
            *release* (lot). Found for arrays, pipelines of `keras_dp_ext.data`, and
            plain ones (`from_tensor_slices(...).shuffle(n).batch(b)`), which it must
            not contradict. Elsewhere it is believed, and the statement says so.

    Raises:
        ValueError: In `fit`, if the optimizer is not private, if the data's size
            or sampling is neither found nor given, or if the target is spent.

    Example:

    >>> import keras, numpy as np, keras_dp_ext as dp
    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> model.compile(dp.optimizers.DPSGD(noise_multiplier=4.0), loss="mse")
    >>> x, y = np.ones([100, 2]), np.ones([100, 1])
    >>> accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    >>> history = model.fit(
    ...     dp.data.poisson_batches(x, y, batch_size=10),
    ...     epochs=2, verbose=0, callbacks=[accountant],
    ... )
    >>> accountant.epsilon == history.history["epsilon"][-1]
    True
    """

    def __init__(
        self,
        num_examples: int | None = None,
        batch_size: int | None = None,
        delta: float | None = None,
        target_epsilon: float | None = None,
        accountant: str = "rdp",
        sampling: Sampling | None = None,
    ):
        super().__init__()
        for name, value in (("num_examples", num_examples), ("batch_size", batch_size)):
            if value is not None:
                check_count(name, value)
        if delta is not None:
            check_in("delta", delta, "[0, 1]")
        if target_epsilon is not None and not target_epsilon > 0:
            raise ValueError(
                "Argument `target_epsilon` must be positive. "
                f"Received: target_epsilon={target_epsilon}"
            )
        check_one_of("accountant", accountant, sorted(accountants.ACCOUNTANTS))
        if sampling is not None and not isinstance(sampling, Sampling):
            raise ValueError(
                "Argument `sampling` must be a `keras_dp_ext.accounting.Sampling`. "
                f"Received: sampling={sampling}"
            )
        self.num_examples = num_examples
        self.batch_size = batch_size
        self.delta = delta
        self.target_epsilon = target_epsilon
        self.accountant = accountant
        self.sampling = sampling
        # Without a target no batch is looked at, and Keras need not wait for it.
        self.async_safe = target_epsilon is None
        self._callback_list: keras.callbacks.CallbackList | None = None
        self._context: FitContext | None = None
        self._opened = False
        self._limit = math.inf
        self._releases_at_least = 0
        self._delta = delta
        self._warned_of_loss = False
        self._live: LiveEpsilon | None = None

    # Keras' protocol ------------------------------------------------------

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._callback_list = keras_internals.calling_callback_list()
        _move_to_front(self, self._callback_list)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._optimizer()
        self._context = find_fit()
        if self._context is not None:
            build_model(self._context)
        # Other callbacks may still restore a checkpoint: open the segment later.
        self._opened = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._opened:
            self._open_segment()
            self._opened = True
        elif self._limit < self.releases + self._releases_per_execution():
            # Another callback has set `stop_training` back.
            self._check_target()
        self._live = self._live_epsilon()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        live = self._live if logs is not None else None
        if live and keras_internals.show_as_it_is("epsilon", self._callback_list):
            # Several steps at once have the index of the first in Keras 3.10, and of
            # the last in 3.13.
            steps = getattr(self.model, "steps_per_execution", 1) or 1
            last = batch - batch % steps + steps - 1
            logs["epsilon"] = live.after(last, self._limit)
        if self.target_epsilon is None:
            return
        per_execution = self._releases_per_execution()
        # Reading the counter waits for the device: only when it may matter.
        self._releases_at_least += per_execution
        if self._releases_at_least + per_execution > self._limit:
            self._releases_at_least = self.releases
            # The search ended where training was planned to end; it may go on.
            self._limit = self._affordable()
            if self._releases_at_least + per_execution > self._limit:
                self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = {} if logs is None else logs
        logs["epsilon"] = self.epsilon
        if not self._warned_of_loss:
            self._warned_of_loss = hints.warn_of_loss_that_is_not_finite(logs)
        published = self.published_epsilon
        if published is not None:
            logs["published_epsilon"] = published

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if not self._opened:
            return
        self._optimizer()._on_claim_change(None)
        # The sampling of what follows may be unknown: it counts as full
        # participations. If there is nothing, nothing is recorded.
        self._optimizer()._open_segment(FullBatch(), self._context)
        if (self.params or {}).get("verbose", 1):
            print(self.statement())

    # Figures --------------------------------------------------------------

    @property
    def releases(self) -> int:
        """Number of noised updates that the optimizer has ever applied."""
        return int(self._optimizer().releases.numpy())

    @property
    def epsilon(self) -> float:
        """Epsilon proven for everything released so far."""
        self._record_layers()
        return self._epsilon(self.releases, "proven")

    @property
    def published_epsilon(self) -> float | None:
        """What the paper would print, for mechanisms that differ from theirs."""
        value = self._mechanism.published_epsilon(self.releases)
        if value is not None:
            return value
        claims = [claim for claim, _, _ in self._entries(self.releases)]
        if not any(claim.published for claim in claims):
            return None
        return self._epsilon(self.releases, "published")

    @property
    def best_attack(self) -> BestAttack:
        """How well the best possible attack can do against all released so far."""
        return self._best_attack(self.epsilon)

    def statement(self) -> str:
        """What is guaranteed, for whom, and what is not covered, in plain words."""
        self._record_layers()
        entries = self._entries(self.releases)
        ledger = self._optimizer().ledger
        epsilon = self.epsilon
        amplified = all(s.if_poisson() == s for _, s, _ in entries)
        return statement.compose(
            epsilon=epsilon,
            delta=self._delta,
            releases=self.releases,
            accountant=self.accountant,
            samplings=[sampling for _, sampling, _ in entries],
            published=self.published_epsilon,
            if_poisson=(
                None if amplified else self._epsilon(self.releases, "if_poisson")
            ),
            caveats=ledger.caveats(),
            assumed=ledger.assumed,
            uncovered=ledger.uncovered,
            best_attack=self._best_attack(epsilon),
        )

    def _live_epsilon(self) -> LiveEpsilon | None:
        """For the progress bar; `None` where it cannot be known beforehand."""
        group = self._optimizer()._claimed_group()
        if self._mechanism.recorded_events(group) is not None:
            return None
        return LiveEpsilon(
            lambda releases: self._epsilon(releases, "proven"),
            self.releases,
            self._optimizer().gradient_accumulation_steps or 1,
            steps=(self.params or {}).get("steps"),
            # Known only once the first step has been traced.
            releases_per_lot=lambda: self._optimizer().releases_per_lot,
            # PLD takes its time.
            points=1 if self.accountant == "pld" else 50,
        )

    def _epsilon(self, releases: int, figure: str) -> float:
        if self._delta is None:
            raise ValueError(
                "PrivacyAccountant chooses delta by the size of the data, in `fit`: "
                "pass `delta=...` to have figures before."
            )
        entries = self._entries(releases)
        return figure_epsilon(entries, figure, self._delta, self.accountant)

    def _best_attack(self, epsilon: float) -> BestAttack:
        entries = figure_entries(self._entries(self.releases), "proven")
        return best_attack(entries, self._delta, epsilon)

    def _record_layers(self) -> None:
        """A layer may be adapted at any time, also after the training."""
        record_layers_of(self.model, self._context and self._context.data)

    def _entries(self, releases: int) -> list[LedgerEntry]:
        return entries_of(self._optimizer(), releases)

    # Opening a segment ----------------------------------------------------

    def _optimizer(self) -> Any:
        return private_optimizer_of(self.model)

    @property
    def _mechanism(self) -> Any:
        return self._optimizer().mechanism

    def _open_segment(self) -> None:
        optimizer = self._optimizer()
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        context = self._context or FitContext(self.model)
        num_examples = _agreed("num_examples", self.num_examples, context.num_examples)
        _agreed("batch_size", self.batch_size, context.batch_size)
        optimizer._discard_unfinished_lot()
        sampling = sampling_of_lots(
            context, optimizer.gradient_accumulation_steps or 1, self.sampling
        )
        if self.delta is None:
            self._delta = _delta_of(num_examples)
        elif num_examples is not None:
            warn_of_large_delta(self.delta, num_examples)
        already = optimizer.ledger.caveats()
        if context.sampling is None:
            optimizer.ledger.add_assumption(stated_sampling(sampling))
        optimizer._open_segment(sampling, self._context)
        self._note_callbacks_that_act_on_data(optimizer.ledger)
        self._record_layers()
        # Raises here, before anything is spent, if earlier releases are unknown, or
        # protect another unit (examples, people) than the next one.
        self._epsilon(self.releases + 1, "proven")
        for caveat in optimizer.ledger.caveats():
            if caveat not in already:
                warnings.warn(caveat, stacklevel=2)
        self._releases_at_least = self.releases
        last_settings.remember(
            self.model,
            delta=self._delta,
            accountant=self.accountant,
            target_epsilon=self.target_epsilon,
        )
        optimizer._on_claim_change(self._check_target)
        self._check_target()

    def _check_target(self) -> None:
        """Also called when the traced step makes several releases on one lot."""
        if self.target_epsilon is not None:
            self._limit = self._affordable()
            self._require_another_execution()

    def _note_callbacks_that_act_on_data(self, ledger: Ledger) -> None:
        """The statement names them, also that of a later training."""
        if self._callback_list is None:
            return
        for what in acting_on_data.describe(self._callback_list.callbacks):
            if what not in ledger.uncovered:
                warnings.warn(f"Not covered by epsilon: {what}.", stacklevel=2)
                ledger.add_uncovered(what)

    def _affordable(self) -> int:
        """The number of releases that the target allows, at most those planned."""
        spent, plan = self.releases, self.params or {}
        planned = calibration.MOST_RELEASES
        if plan.get("steps") and plan.get("epochs"):
            accumulation = self._optimizer().gradient_accumulation_steps or 1
            lots = math.ceil(plan["steps"] * plan["epochs"] / accumulation)
            planned = spent + lots * self._optimizer().releases_per_lot
            planned += self._releases_per_execution()
        return calibration.calibrate_releases(
            lambda releases: self._epsilon(releases, "proven"),
            self.target_epsilon,
            at_least=spent,
            at_most=planned,
        )

    def _require_another_execution(self) -> None:
        """Raises if the target allows no further step."""
        spent, per_execution = self.releases, self._releases_per_execution()
        if self._limit < spent + per_execution:
            raise ValueError(
                f"Argument `target_epsilon` must allow at least {per_execution} more "
                f"release(s). {spent} releases have spent epsilon "
                f"{self._epsilon(spent, 'proven'):.4g} at delta {self._delta:g}, and "
                f"{per_execution} more would make it "
                f"{self._epsilon(spent + per_execution, 'proven'):.4g}. "
                f"Received: target_epsilon={self.target_epsilon}"
            )

    def _releases_per_execution(self) -> int:
        """The most releases between two looks at the counter."""
        steps = getattr(self.model, "steps_per_execution", 1) or 1
        optimizer = self._optimizer()
        lots = math.ceil(steps / (optimizer.gradient_accumulation_steps or 1))
        return lots * optimizer.releases_per_lot


def _agreed(name: str, given: int | None, found: int | None) -> int | None:
    """The argument or what was found; an error where they contradict."""
    if given is not None and found is not None and given != found:
        raise ValueError(
            f"Argument `{name}` must agree with the data, which has {found}. "
            f"Received: {name}={given}"
        )
    return found if given is None else given


def _delta_of(num_examples: int | None) -> float:
    if num_examples is None:
        raise ValueError(
            "PrivacyAccountant cannot choose delta without the size of the training "
            "set: pass `delta=...` or `num_examples=...`."
        )
    return default_delta(num_examples)


def _move_to_front(
    callback: PrivacyAccountant, owner: keras.callbacks.CallbackList | None
) -> None:
    """Puts the accountant before the callbacks that read its logs.

    Keras appends History and the progress bar itself, but a CSVLogger or
    EarlyStopping that the user lists first would not see epsilon. Keras is
    iterating over the list just now, so it gets a new one.
    """
    if owner is not None:
        rest = [other for other in owner.callbacks if other is not callback]
        owner.callbacks = [callback, *rest]
