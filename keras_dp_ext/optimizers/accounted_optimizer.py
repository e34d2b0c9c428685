"""What a private optimizer says about its releases: claim, counter, ledger."""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import keras_internals
from keras_dp_ext._fit_context import FitContext, find_fit
from keras_dp_ext.accounting import Claim, Ledger, Sampling, Unknown
from keras_dp_ext.accounting.coverage import check_covered
from keras_dp_ext.accounting.ledger import stated_sampling
from keras_dp_ext.data.sampling.lots import check_unit
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.optimizers.former_trainings import add_training, former_trainings
from keras_dp_ext.optimizers.shared_lot import (
    check_places,
    claim_of_lot,
    companions,
    most_releases_per_lot,
)
from keras_dp_ext.optimizers.spending import Spending
from keras_dp_ext.optimizers.state import TrainingState
from keras_dp_ext.optimizers.training_session import refuse_two_at_once

_SEED_CAVEAT = (
    "The noise is reproducible (`noise_seed`): there is no privacy at all against "
    "anyone who knows or guesses the seed, which is also written into saved models. "
    "Train with `noise_seed=None`."
)

_SECRET_SEED = (
    "the `seed` of the sampler is secret, and no two trainings on these data drew their "
    "lots from the same one: who knows the lots gains what sampling hides, and lots that "
    "come again are not hidden twice"
)


class AccountedOptimizer:
    """The part of `PrivateOptimizer` that accountants, reports and commands ask."""

    # What `PrivateOptimizer` and Keras provide.
    built: bool
    mechanism: Mechanism
    noise_seed: int | None
    num_microbatches: int | None
    _spending: Spending
    _state: TrainingState

    def privacy_claim(self) -> Claim:
        """What one lot costs: proven, and as published.

        A lot is one release, unless the training step makes several.
        """
        return claim_of_lot(self)

    def _own_claim(self) -> Claim:
        """What one release of this optimizer costs."""
        if not self.built:
            raise ValueError(
                "The optimizer does not know the model yet. Call "
                "`optimizer.build(model.trainable_variables)` first."
            )
        parameters = sum(
            int(np.prod(variable.shape))
            for variable in keras_internals.variables_of(self)
        )
        claim = self.mechanism.claim(parameters, self._claimed_group())
        if self.mechanism.releases_data:
            claim = claim.without_proof()
        if self.noise_seed is None:
            return claim
        caveat = " ".join(filter(None, [claim.caveat, _SEED_CAVEAT]))
        return dataclasses.replace(claim, caveat=caveat)

    def _revise_claim(self) -> None:
        """The step turned out to release more often on one lot than was thought."""
        if self.mechanism.recorded_events(self._claimed_group()) is not None:
            raise ValueError(
                f"{type(self).__name__} as published knows the cost of a release only "
                "afterwards, which is not supported where a training step makes "
                "several private updates on one lot."
            )
        sampling = self._recorded_sampling()
        for other in companions(self):
            if not _is_known(sampling):
                # An accountant was told how batches are drawn, and told that one.
                sampling = other._recorded_sampling()
        if sampling is not None:
            claim = self.privacy_claim()
            self._check_within_a_pass(claim, sampling)
            self._spending.open_segment(claim, sampling)
        if self._state.claim_observer is not None:
            self._state.claim_observer()

    def _check_within_a_pass(self, claim: Claim, sampling: Sampling) -> None:
        """Raises if a step that is traced anew costs more from the middle of a pass on."""
        for last in self.ledger.segments[-1:]:
            if claim != last.claim:
                releases = self._spending.count - last.start
                lots = -(-releases // last.claim.releases_per_lot)
                sampling.windows(lots, lots + 1)

    def _recorded_sampling(self) -> Sampling | None:
        segments = self.ledger.segments
        return segments[-1].sampling if segments else None

    def _on_claim_change(self, observer: Callable[[], None] | None) -> None:
        """Calls `observer` when a traced step turns out to cost more than one release.

        It may raise, before the step has run.
        """
        self._state.claim_observer = observer

    @property
    def releases_per_lot(self) -> int:
        """How often this optimizer releases on one lot, at the most."""
        return most_releases_per_lot(self)

    def _warn_of_reproducible_noise(self) -> None:
        """Once; an accountant that has warned already is enough."""
        if self.noise_seed is None or not self._state.first_time("noise_seed"):
            return
        if not any(_SEED_CAVEAT in caveat for caveat in self.ledger.caveats()):
            warnings.warn(_SEED_CAVEAT, stacklevel=2)

    def _claimed_group(self) -> int:
        """Examples per microbatch, as far as is known; several when in doubt."""
        if self.num_microbatches is None:
            return 1
        if self._state.examples_per_microbatch is None:
            context = find_fit(self)
            if context is not None and context.batch_size == self.num_microbatches:
                self._state.examples_per_microbatch = 1
        return self._state.examples_per_microbatch or 2

    @property
    def releases(self) -> keras.Variable:
        """Number of noised updates ever applied; an int64 Keras variable."""
        return self._spending.releases

    @property
    def ledger(self) -> Ledger:
        """What has been released on the data: live, so that additions are recorded."""
        return self._spending.ledger

    def declare_sampling(self, sampling: Sampling) -> None:
        """Says how the lots of all releases from now on are drawn.

        `fit` finds out by itself; a custom loop calls this once, before its first step.

        >>> import keras, keras_dp_ext as dp
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> optimizer = dp.optimizers.DPSGD(noise_multiplier=1.1)
        >>> optimizer.build(model.trainable_variables)
        >>> optimizer.declare_sampling(dp.accounting.Poisson(0.01))
        """
        context = find_fit(self)
        check_unit(sampling, context)
        self.ledger.add_assumption(stated_sampling(sampling))
        self._open_segment(sampling, context)
        self._state.sampling_is_stated = context is None

    def _open_segment(self, sampling: Sampling, context: FitContext | None) -> None:
        """The same for a sampling that was found in the data of a training."""
        refuse_two_at_once(self._state.accounted_session, context)
        if not isinstance(sampling, Unknown):
            check_covered(self.privacy_claim().proven, sampling)
            check_places(self, sampling)
        if context is not None and context.is_seeded and sampling.amplifies:
            self.ledger.add_assumption(_SECRET_SEED)
        self._spending.open_segment(self.privacy_claim(), sampling)
        session = None if context is None else weakref.ref(context.session)
        self._state.accounted_session = session
        self._state.sampling_is_stated = False

    def continue_from(self, former: AccountedOptimizer) -> None:
        """Counts the releases of an optimizer that this one replaces as its own.

        To go on with other noise, or another learning rule:

        >>> import keras, keras_dp_ext as dp
        >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        >>> model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), loss="mse")
        >>> quieter = dp.optimizers.DPSGD(noise_multiplier=1.0)
        >>> quieter.continue_from(model.optimizer)
        >>> model.compile(quieter, loss="mse")
        """
        self._spending.continue_from(former._spending)
        self._state.former_counters += former._own_counters()

    def open_segment(self, sampling: Sampling) -> None:
        """Deprecated name of `declare_sampling`."""
        warnings.warn(
            "`open_segment` is now called `declare_sampling`.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.declare_sampling(sampling)

    def take_over(self, former: AccountedOptimizer) -> None:
        """Deprecated name of `continue_from`."""
        warnings.warn(
            "`take_over` is now called `continue_from`.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.continue_from(former)

    def _warn_of_former_training(self, variables: Sequence[Any]) -> None:
        """Another private optimizer's releases are in another ledger."""
        own = self._own_counters()
        for former in former_trainings(variables):
            if any(former is counter for counter in own):
                continue
            with tf.init_scope():
                count = int(former.value.numpy())
            if count:
                warnings.warn(
                    f"These weights were trained by another private optimizer with "
                    f"{count} releases, which are not in this one's ledger. If both "
                    "saw the same data, their epsilons add up: keep the former "
                    "optimizer, call `continue_from(former)`, or account with "
                    "`Ledger.merge`.",
                    stacklevel=2,
                )
        add_training(variables, self.releases)

    def _own_counters(self) -> Any:
        return [self.releases, *self._state.former_counters]


def _is_known(sampling: Sampling | None) -> bool:
    return sampling is not None and not isinstance(sampling, Unknown)
