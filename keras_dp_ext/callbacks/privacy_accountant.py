"""The callback that shows epsilon during training and stops within a budget."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from typing import Any

import keras

from keras_dp_ext._build_model import build_model
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import accountants, calibration
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.conversion import check_delta
from keras_dp_ext.accounting.default_delta import default_delta, warn_of_large_delta
from keras_dp_ext.accounting.ledger import figure_entries
from keras_dp_ext.accounting.sampling import FullBatch, Sampling, Shuffled
from keras_dp_ext.callbacks import hints, statement


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
        sampling: How batches are drawn, for a pipeline of your own that does
            something else than to shuffle: a `keras_dp_ext.accounting.Sampling`
            that describes one *release* (lot). It is believed, not verified, but
            must not contradict arrays and pipelines whose sampling is known.

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
            if value is not None and (value < 1 or value != int(value)):
                raise ValueError(
                    f"Argument `{name}` must be a positive integer. "
                    f"Received: {name}={value}"
                )
        if delta is not None:
            check_delta(delta)
        if target_epsilon is not None and not target_epsilon > 0:
            raise ValueError(
                "Argument `target_epsilon` must be positive. "
                f"Received: target_epsilon={target_epsilon}"
            )
        if accountant not in accountants.ACCOUNTANTS:
            raise ValueError(
                "Argument `accountant` must be one of "
                f"{sorted(accountants.ACCOUNTANTS)}. Received: accountant={accountant}"
            )
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
        self._context: FitContext | None = None
        self._opened = False
        self._limit = math.inf
        self._releases_at_least = 0
        self._delta = delta
        self._warned_of_loss = False

    # Keras' protocol ------------------------------------------------------

    def set_model(self, model):
        super().set_model(model)
        _move_to_front(self, sys._getframe(1).f_locals.get("self"))

    def on_train_begin(self, logs=None):
        self._optimizer()
        self._context = find_fit()
        if self._context is not None:
            build_model(self._context)
        # Other callbacks may still restore a checkpoint: open the segment later.
        self._opened = False

    def on_epoch_begin(self, epoch, logs=None):
        if not self._opened:
            self._open_segment()
            self._opened = True

    def on_train_batch_end(self, batch, logs=None):
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

    def on_epoch_end(self, epoch, logs=None):
        logs = {} if logs is None else logs
        logs["epsilon"] = self.epsilon
        if not self._warned_of_loss:
            self._warned_of_loss = hints.warn_of_loss_that_is_not_finite(logs)
        published = self.published_epsilon
        if published is not None:
            logs["published_epsilon"] = published

    def on_train_end(self, logs=None):
        if not self._opened:
            return
        # Releases without an accountant, whose sampling nobody knows, count as
        # full participations. If there are none, nothing is recorded.
        self._optimizer().open_segment(FullBatch())
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
        return self._epsilon(self.releases, "proven")

    @property
    def published_epsilon(self) -> float | None:
        """What the paper would print, for mechanisms that differ from theirs."""
        own = getattr(self._mechanism, "published_epsilon", None)
        value = own(self.releases) if own is not None else None
        if value is not None:
            return value
        claims = [claim for claim, _, _ in self._entries(self.releases)]
        if not any(claim.published for claim in claims):
            return None
        return self._epsilon(self.releases, "published")

    def statement(self) -> str:
        """What is guaranteed, for whom, and what is not covered, in plain words."""
        entries = self._entries(self.releases)
        amplified = all(s.if_poisson() == s for _, s, _ in entries)
        return statement.compose(
            epsilon=self.epsilon,
            delta=self._delta,
            releases=self.releases,
            accountant=self.accountant,
            samplings=[sampling for _, sampling, _ in entries],
            published=self.published_epsilon,
            if_poisson=(
                None if amplified else self._epsilon(self.releases, "if_poisson")
            ),
            caveats=self._optimizer().ledger.caveats(),
        )

    def _epsilon(self, releases: int, figure: str) -> float:
        if self._delta is None:
            raise ValueError(
                "PrivacyAccountant chooses delta by the size of the data, in `fit`: "
                "pass `delta=...` to have figures before."
            )
        entries = figure_entries(self._entries(releases), figure)
        return accountants.epsilon(entries, self._delta, self.accountant)

    def _entries(self, releases: int) -> list[tuple[Claim, Sampling, int]]:
        """The ledger's entries, with what the mechanism has recorded itself.

        A mechanism whose noise depends on earlier releases knows the cost of a
        release only afterwards, and offers `recorded_events()`.
        """
        optimizer = self._optimizer()
        entries = optimizer.ledger.entries(releases)
        recorded = getattr(self._mechanism, "recorded_events", lambda group: None)(
            optimizer._claimed_group()
        )
        if recorded is None:
            return entries
        claim = optimizer.privacy_claim()
        mine = [entry for entry in entries if entry[0] == claim]
        samplings = {sampling for _, sampling, _ in mine}
        counted = sum(count for _, count in recorded)
        if len(samplings) != 1 or counted < sum(count for _, _, count in mine):
            # It cannot be told which release was sampled how: the claim holds.
            return entries
        (sampling,) = samplings
        if isinstance(sampling, Shuffled):
            # One participation in an epoch may each time be in the release with
            # the least noise: counts by noise must not be divided by the epoch.
            sampling = dataclasses.replace(sampling, steps_per_epoch=1)
        return [entry for entry in entries if entry[0] != claim] + [
            (dataclasses.replace(claim, proven=event), sampling, count)
            for event, count in recorded
        ]

    # Opening a segment ----------------------------------------------------

    def _optimizer(self) -> Any:
        optimizer = getattr(self.model, "optimizer", None)
        if not hasattr(optimizer, "privacy_claim"):
            raise ValueError(
                "PrivacyAccountant needs a private optimizer, such as "
                "`keras_dp_ext.optimizers.DPSGD`: this training has no privacy at "
                f"all. Received: optimizer={type(optimizer).__name__}"
            )
        return optimizer

    @property
    def _mechanism(self) -> Any:
        return getattr(self._optimizer(), "mechanism", None)

    def _open_segment(self) -> None:
        optimizer = self._optimizer()
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        context = self._context or FitContext(self.model)
        num_examples = _agreed("num_examples", self.num_examples, context.num_examples)
        batch_size = _agreed("batch_size", self.batch_size, context.batch_size)
        optimizer._discard_unfinished_lot()
        sampling = self._sampling_of_lots(context, num_examples, batch_size)
        if self.delta is None:
            self._delta = _delta_of(num_examples)
        elif num_examples is not None:
            warn_of_large_delta(self.delta, num_examples)
        already = optimizer.ledger.caveats()
        optimizer.open_segment(sampling)
        # Raises here, before anything is spent, if earlier releases are unknown.
        self._epsilon(self.releases, "proven")
        for caveat in optimizer.ledger.caveats():
            if caveat not in already:
                warnings.warn(caveat, stacklevel=2)
        self._releases_at_least = self.releases
        if self.target_epsilon is not None:
            self._limit = self._affordable()
            self._require_another_execution()

    def _sampling_of_lots(
        self, context: FitContext, num_examples: int | None, batch_size: int | None
    ) -> Sampling:
        """How the examples of one release are chosen: as stated, or as found."""
        accumulation = self._optimizer().gradient_accumulation_steps or 1
        if self.sampling is not None and context.sampling is None:
            return self.sampling
        found = _sampling_of_lots(
            context,
            num_examples,
            batch_size,
            accumulation,
            steps_per_epoch=(self.params or {}).get("steps"),
        )
        if self.sampling not in (None, FullBatch(), found):
            raise ValueError(
                "Argument `sampling` must agree with the data, which has "
                f"{found}. Received: sampling={self.sampling}"
            )
        return self.sampling or found

    def _affordable(self) -> int:
        """The number of releases that the target allows, at most those planned."""
        spent, plan = self.releases, self.params or {}
        planned = calibration._LARGEST
        if plan.get("steps") and plan.get("epochs"):
            accumulation = self._optimizer().gradient_accumulation_steps or 1
            lots = math.ceil(plan["steps"] * plan["epochs"] / accumulation)
            planned = spent + lots + self._releases_per_execution()
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
        return math.ceil(steps / (self._optimizer().gradient_accumulation_steps or 1))


def _sampling_of_lots(
    context: FitContext,
    num_examples: int | None,
    batch_size: int | None,
    accumulation: int,
    steps_per_epoch: int | None,
) -> Sampling:
    """How the data chooses the examples of one release."""
    if context.accumulation_steps is not None:
        if context.accumulation_steps != accumulation:
            raise ValueError(
                "The data is cut into lots of "
                f"{context.accumulation_steps} batch(es), but the optimizer "
                f"accumulates {accumulation}: its lots are not what was sampled. Pass "
                "the same `accumulation_steps` to the pipeline as "
                "`gradient_accumulation_steps` to the optimizer."
            )
        return context.sampling
    if num_examples is None or batch_size is None:
        missing = [
            name
            for name, value in (
                ("num_examples", num_examples),
                ("batch_size", batch_size),
            )
            if value is None
        ]
        raise ValueError(
            f"PrivacyAccountant cannot see {' and '.join(missing)} in the data: pass "
            f"{', '.join(f'`{name}=...`' for name in missing)}, or use a pipeline of "
            "`keras_dp_ext.data`."
        )
    batches = math.ceil(num_examples / batch_size)
    if steps_per_epoch and context.sampling is None:
        batches = _within_a_pass(batches, steps_per_epoch)
    if batches % accumulation:
        raise ValueError(
            f"`gradient_accumulation_steps` must divide the {batches} batches of an "
            "epoch: a lot that spans two epochs can hold an example twice. "
            f"Received: gradient_accumulation_steps={accumulation}"
        )
    return Shuffled(
        steps_per_epoch=batches // accumulation,
        rate=min(1.0, accumulation * batch_size / num_examples),
    )


def _within_a_pass(batches: int, steps_per_epoch: int) -> int:
    """In how many successive releases an example is at most once.

    A pass has `batches`, but the pipeline might start a new one with each of Keras'
    epochs, and then has `ceil(steps_per_epoch / batches)` of them in an epoch.
    """
    return max(1, steps_per_epoch // math.ceil(steps_per_epoch / batches or 1))


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


def _move_to_front(callback: PrivacyAccountant, owner: Any) -> None:
    """Puts the accountant before the callbacks that read its logs.

    Keras appends History and the progress bar itself, but a CSVLogger or
    EarlyStopping that the user lists first would not see epsilon. Keras is
    iterating over the list just now, so it gets a new one.
    """
    if isinstance(owner, keras.callbacks.CallbackList):
        rest = [other for other in owner.callbacks if other is not callback]
        owner.callbacks = [callback, *rest]
