"""Trials that show whether the losses of a batch depend on one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification import probe_errors
from keras_dp_ext.verification.agreement import largest
from keras_dp_ext.verification.synthetic_batches import separating_subsets

if TYPE_CHECKING:
    from keras_dp_ext.verification.probe_functions import ProbeFunctions
    from keras_dp_ext.verification.synthetic_batches import SyntheticBatches
    from keras_dp_ext.verification.variable_copies import VariableCopies

# The same ops on the same row: only what a kernel does in another order is innocent.
_ROUNDING = 16 * 2.0**-23

# A layer that mixes one batch in ten (MixUp) is caught with a probability of 92 %.
_SEEDS = 24

# Scale of the kept examples, scale of the others, whether weights are perturbed.
# Models that rescale inputs by themselves take pixels up to 255. Far larger and far
# smaller others, and such that are not finite, wake up what waits for them: clipping
# over the batch, "skip the batch if any value is NaN".
_ROUNDS = [
    (100.0, 100.0, False),
    (1.0, 1.0, True),
    (100.0, 100.0, True),
    (1.0, 1.0, False),
    (1.0, 1e6, True),
    (1.0, 1e-6, False),
    (1e-6, 1e-6, True),
    (1e6, 1e6, False),
    (1e3, 1.0, True),
    (1.0, float("nan"), True),
    (1.0, float("inf"), False),
]

# What a model can refuse values with.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.AbortedError,
    tf.errors.OutOfRangeError,
)


class MixingTrials:
    """Replaces some examples and looks at the losses of all others.

    Args:
        functions: The step as functions.
        copies: Of the variables.
        batches: Made-up data.
        batch: Number of examples.
        group: Examples per microbatch.
        variables: The trainable variables, for the error.
        generator: Of random choices.
        findings: What reading the graph has found, for the error.
    """

    def __init__(
        self,
        functions: ProbeFunctions,
        copies: VariableCopies,
        batches: SyntheticBatches,
        batch: int,
        group: int,
        variables: Sequence[Any],
        generator: np.random.Generator,
        findings: Any = (),
    ):
        self._functions = functions
        self._copies = copies
        self._batches = batches
        self._batch = batch
        self.rows = batch // group
        self._variables = variables
        self._generator = generator
        self._findings = findings
        self.data = batches.draw()
        self._noise = 0.0
        #: The row to look at by itself.
        self.row = int(generator.integers(self.rows))

    def accepts(self) -> bool:
        """Whether the model takes such data, and gives losses that are finite."""
        self._copies.reset()
        try:
            self._functions.freeze_draws(self.data)
        except REFUSALS:
            return False
        self._losses = self._losses_of(self.data)
        if self._losses is None or not np.isfinite(self._losses).all():
            return False
        # Kernels on accelerators add in another order in each run.
        again = self._losses_of(self.data)
        self._noise = 4 * largest(again - self._losses)
        self.row = int(np.argmax(np.abs(self._losses)))
        return True

    def check(self) -> None:
        """Raises `ValueError` if a loss sees another example."""
        others = self._batches.draw()
        for kept in separating_subsets(self.rows, self._generator):
            new_data = self._batches.with_others(self.data, others, kept)
            self._compare(self._losses, self.data, new_data, kept)
        self._check_extremes()
        self._check_other_circumstances()

    def _losses_of(self, data: Sequence[tf.Tensor]) -> np.ndarray | None:
        """`[rows]`; `None` if the model refuses the made-up data."""
        try:
            losses = self._functions.losses(data)
        except REFUSALS:
            return None  # E.g. a vocabulary of less than four tokens.
        self._functions.check_number_of_losses(losses, self._batch)
        return losses.astype(np.float64).reshape(self.rows, -1).mean(axis=1)

    def _compare(
        self,
        losses: np.ndarray,
        data: Sequence[tf.Tensor],
        new_data: Sequence[tf.Tensor],
        kept: np.ndarray,
    ) -> None:
        """Raises if one of the kept examples sees that others have changed."""
        new_losses = self._losses_of(new_data)
        if losses is None or new_losses is None or not kept.any():
            return
        if not same(new_losses[kept], losses[kept], _ROUNDING, self._noise):
            raise self.error(data, new_data, kept, "the loss")

    def _check_extremes(self) -> None:
        kept = self._random_half()
        for old_data, new_data in self._batches.extremes(self.data, kept):
            losses = self._losses_of(old_data)
            self._compare(losses, old_data, new_data, kept)

    def _check_other_circumstances(self) -> None:
        """Other inputs, weights and seeds: what is asleep now may wake up.

        Results that are not finite say nothing here, unless others changed them.
        """
        rounds = list(_ROUNDS)
        if not self._batches.have_floats:
            rounds = rounds[:4]
        if self._copies.have_seeds or self._functions.has_hidden_draws:
            rounds += _ROUNDS[:4] * (_SEEDS // 4 - 1)
        generator = self._generator
        for number, (scale, other_scale, is_perturbed) in enumerate(rounds):
            self._copies.reset()
            self._copies.reseed(generator)
            if is_perturbed:
                self._copies.perturb(generator)
            self._functions.freeze_draws(self.data)
            data = self._batches.draw(scale)
            others = self._batches.draw(other_scale)
            kept = self._random_half()
            losses = self._losses_of(data)
            for mask in (kept, ~kept) if number < len(_ROUNDS) else (kept,):
                new_data = self._batches.with_others(data, others, mask)
                self._compare(losses, data, new_data, mask)
        self._copies.reset()
        self._functions.freeze_draws(self.data)

    def _random_half(self) -> np.ndarray:
        return self._generator.permutation(self.rows) < (self.rows + 1) // 2

    def error(
        self,
        data: Sequence[tf.Tensor],
        new_data: Sequence[tf.Tensor],
        kept: np.ndarray,
        what: str,
    ) -> ValueError:
        """Says what mixes, and where."""
        op = self._first_mixing_op(data, new_data, kept)
        finding = next(iter(self._findings), None)
        return probe_errors.mixing_error(what, op, self._variables, finding)

    def _first_mixing_op(
        self, data: Sequence[tf.Tensor], new_data: Sequence[tf.Tensor], kept: np.ndarray
    ) -> tf.Operation | None:
        """The op at which a kept example begins to see the others."""
        tensors, evaluate = self._functions.every_float()
        try:
            results = [evaluate(inputs) for inputs in (data, new_data)]
        except REFUSALS:
            return None
        for tensor, old, new in zip(tensors, *results, strict=True):
            old, new = (tf.cast(value, tf.float64).numpy() for value in (old, new))
            if old.shape != new.shape or not old.size or old.ndim == 0:
                continue
            if old.shape[0] % self.rows:
                continue
            old, new = (value.reshape(self.rows, -1)[kept] for value in (old, new))
            if not same(new, old, 1e-5, 0.0):
                return tensor.op
        return None


def same(new: np.ndarray, old: np.ndarray, share: float, noise: float) -> bool:
    """Up to a share of the largest number. What is not finite must be so in both.

    Nothing absolute: losses may have any unit.
    """
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)):
        return False
    new, old = new[finite], old[finite]
    return largest(new - old) <= share * largest(old) + noise
