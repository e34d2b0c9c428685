"""Trials that compare per-example gradients with ordinary ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification import agreement, probe_errors
from keras_dp_ext.verification.mixing_trials import REFUSALS, MixingTrials, same
from keras_dp_ext.verification.trial import Trial

if TYPE_CHECKING:
    from keras_dp_ext.verification.probe_functions import ProbeFunctions
    from keras_dp_ext.verification.synthetic_batches import SyntheticBatches
    from keras_dp_ext.verification.variable_copies import VariableCopies

# What decides where there is no float64.
_SHARE, _SHARE_OF_HALVES = 1e-3, 5e-2

# Rules add what rounding could take from a norm, so as never to clip too little: a
# bound, which is far above what rounding does take.
_SPARE = 1000.0

_NO_DOUBLE = (
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    TypeError,
    ValueError,
)

# Scales of examples whose presence must not change the gradient of another one.
_OTHERS = (1.0, 1e6, float("nan"), float("inf"))


class GradientTrials:
    """Runs the rules and the ordinary backward pass on the same activations.

    Args:
        functions: The step as functions.
        copies: Of the variables.
        batches: Made-up data.
        variables: The trainable variables.
        mixing: The trials of the losses, which know the data.
        generator: Of random choices.
    """

    def __init__(
        self,
        functions: ProbeFunctions,
        copies: VariableCopies,
        batches: SyntheticBatches,
        variables: Sequence[Any],
        mixing: MixingTrials,
        generator: np.random.Generator,
    ):
        self._functions = functions
        self._copies = copies
        self._batches = batches
        self._variables = variables
        self._mixing: MixingTrials = mixing
        self._generator = generator

    def check_rules(self) -> bool:
        """One trial of the rules' numbers, for examples that are known not to mix.

        At weights that are drawn: nothing depends on what the weights happen to be.

        Returns:
            Whether the model takes such data, and gives gradients that are finite.

        Raises:
            ValueError: If a gradient is wrong.
        """
        self._copies.reset()
        try:
            self._functions.freeze_draws(self._mixing.data)
            self._copies.redraw(self._generator)
            trial = self._trial()
            if trial.is_finite():
                self._check_sums(trial)
                is_blind = self._is_blind(trial)
                trial.keep_only_row()
                self._check_norms(trial)
                if not is_blind:
                    return True
            del trial  # Its results are as large as the model, several times.
            trial = self._trial_near_by()
        except REFUSALS:
            return False
        if trial is None:
            return False
        self._check_sums(trial)
        trial.keep_only_row()
        self._check_norms(trial)
        return True

    def check_everything(self) -> bool:
        """Trials for examples that are not known to stay apart.

        Returns:
            Whether gradients are finite.

        Raises:
            ValueError: If a gradient is wrong, or sees other examples.
        """
        trial = self._trial_near_by()
        if trial is None:
            return False
        self._check_sums(trial)
        self._check_norms(trial)
        self._compare(trial, trial.picked, trial.single, "gradient of one example")
        self._check_apart(trial)
        self._copies.redraw(self._generator)
        trial = self._trial()
        if trial.is_finite():
            self._check_sums(trial)
        self._copies.reset()
        return True

    def _trial_near_by(self) -> Trial | None:
        """At weights near by: a gradient of zero would agree with everything."""
        self._copies.reset()
        self._copies.perturb(self._generator)
        trial = self._trial()
        if not trial.is_finite():
            self._copies.reset()
            trial = self._trial()
        return trial if trial.is_finite() else None

    def _is_blind(self, trial: Trial) -> bool:
        """Whether some gradient is zero at these weights, on both sides."""
        columns = zip(trial.weighted().truth, *trial.plain().sums, strict=True)
        return any(not any(value.any() for value in column) for column in columns)

    def _trial(self) -> Trial:
        row = self._mixing.row
        return Trial(
            self._functions, self._mixing.data, self._mixing.rows, row, self._generator
        )

    def _check_sums(self, trial: Trial) -> None:
        """Over the batch, with a weight for each row."""
        self._compare(trial, trial.plain, trial.weighted, "sum over the batch")

    def _check_norms(self, trial: Trial) -> None:
        for number in range(len(trial.norms_squared())):
            self._compare_norm(trial, number)

    def _compare(self, trial: Trial, by_rules: Any, ordinary: Any, what: str) -> None:
        expected = ordinary().truth
        for number, sums in enumerate(by_rules().sums):
            for place, variable in enumerate(self._variables):
                if agreement.agree(
                    sums[place],
                    expected[place],
                    functools.partial(trial.rounding, place),
                ):
                    continue
                if not self._agree_after_all(trial, by_rules, ordinary, number, place):
                    apart = agreement.difference(sums[place], expected[place])
                    self._refuse_draws_from_data()
                    raise probe_errors.wrong_gradients_error(variable, what, apart)

    def _refuse_draws_from_data(self) -> None:
        """Two runs of such a model differ, and no rule is to blame."""
        draw = self._functions.draw_from_data()
        if draw is not None:
            raise probe_errors.draws_from_data_error(draw)

    def _agree_after_all(
        self, trial: Trial, by_rules: Any, ordinary: Any, number: Any, place: Any
    ) -> bool:
        computed, expected = by_rules().sums[number][place], ordinary().truth[place]
        try:
            wide = by_rules(True).sums[number][place], ordinary(True).truth[place]
            rounding = functools.partial(trial.rounding, place, True)
            rounding()
        except _NO_DOUBLE:
            share = _SHARE_OF_HALVES if self._has_halves() else _SHARE
            rounding = trial.rounding(place)
            return agreement.agree_roughly(computed, expected, rounding, share)
        apart = agreement.difference(computed, expected)
        return agreement.agree_in_double(*wide, rounding, apart)

    def _compare_norm(self, trial: Trial, number: int) -> None:
        row = trial.row_by_rules()
        if row is not None and agreement.norms_agree(
            *self._norms(trial, number, False, row, weight=trial.r[trial.row]),
            lambda: 0.0,
        ):
            return
        if self._norm_agrees(trial, number, False):
            return
        try:
            if self._norm_agrees(trial, number, True):
                return
        except _NO_DOUBLE:
            share = _SHARE_OF_HALVES if self._has_halves() else _SHARE
            norm, expected = self._norms(trial, number, False)
            rounding = self._rounding_of_norm(trial, number, False)
            allowed = share * expected + 16 * rounding
            if abs(norm - expected) <= allowed:
                return
        norm, expected = self._norms(trial, number, False)
        variables = [self._variables[place] for place in self._places(number)]
        self._refuse_draws_from_data()
        raise probe_errors.wrong_norms_error(variables, norm**2, expected**2)

    def _norm_agrees(self, trial: Trial, number: int, double: bool) -> bool:
        norm, expected = self._norms(trial, number, double)
        return agreement.norms_agree(
            norm,
            expected,
            lambda: self._rounding_of_norm(trial, number, double),
            lambda: (
                _SPARE * self._rounding_of_norm(trial, number, False) if double else 0.0
            ),
        )

    def _places(self, number: int) -> list[int]:
        return self._functions.places_of_norms()[number]

    def _norms(
        self,
        trial: Trial,
        number: int,
        double: bool,
        truth: Any = None,
        weight: float = 1.0,
    ) -> tuple[float, float]:
        """The norm by the rules, and that of the ordinary gradient.

        Args:
            trial: The trial.
            number: Which of the norms that were asked for.
            double: In float64.
            truth: The ordinary gradient times `weight`; by default that of the trial.
            weight: By what it was multiplied.
        """
        truth = trial.single(double).truth if truth is None else truth
        norm = float(np.sqrt(trial.norms_squared(double)[number][trial.row]))
        scales = self._functions.scales_of(trial.scales)[number]
        squares = [
            agreement.sum_of_squares(truth[place], scales[place])
            for place in self._places(number)
        ]
        return norm, float(np.sqrt(sum(squares)) / abs(weight))

    def _rounding_of_norm(self, trial: Trial, number: int, double: bool) -> float:
        truth = trial.single(double).truth
        squares = [
            truth[place].size * trial.rounding(place, double) ** 2
            for place in self._places(number)
        ]
        return float(np.sqrt(sum(squares)))

    def _has_halves(self) -> bool:
        halves = (tf.float16, tf.bfloat16)
        return any(
            output.dtype in halves
            for op in self._functions.forward_ops
            for output in op.outputs
        )

    # Gradients that see other examples --------------------------------------

    def _check_apart(self, trial: Trial) -> None:
        """Raises if the gradient of an example sees that others have changed."""
        kept = np.arange(self._mixing.rows) == trial.row
        data, before = self._mixing.data, trial.picked()
        scales = _OTHERS if self._batches.have_floats else _OTHERS[:1]
        for scale in scales:
            others = self._batches.draw(scale)
            new_data = self._batches.with_others(data, others, kept)
            try:
                after = trial.picked_from(new_data)
            except REFUSALS:
                continue
            for old_sums, new_sums in zip(before.sums, after.sums, strict=True):
                self._compare_apart(trial, old_sums, new_sums, data, new_data, kept)
        self._check_inputs(trial)

    def _compare_apart(
        self,
        trial: Trial,
        old_sums: Any,
        new_sums: Any,
        data: Sequence[tf.Tensor],
        new_data: Sequence[tf.Tensor],
        kept: np.ndarray,
    ) -> None:
        pairs = zip(self._variables, old_sums, new_sums, strict=True)
        for place, (variable, old, new) in enumerate(pairs):
            if same(new, old, 1e-5, 0.0):
                continue
            if not same(new, old, 1e-5, 16 * trial.rounding(place)):
                what = f"the gradient of `{probe_errors.name(variable)}`"
                raise self._mixing.error(data, new_data, kept, what)

    def _check_inputs(self, trial: Trial) -> None:
        """Example b's inputs move `r_b` times its own loss, and no other."""
        rows = self._mixing.rows
        pairs = zip(trial.weighted().inputs, trial.plain().inputs, strict=True)
        scale = max(map(agreement.largest, trial.plain().inputs), default=0.0)
        for weighted, plain in pairs:
            weighted, plain = weighted.reshape(rows, -1), plain.reshape(rows, -1)
            if not same(weighted, trial.r[:, None] * plain, 1e-3, 1e-5 * scale):
                kept = np.arange(rows) % 2 == 0
                others = self._batches.draw()
                new_data = self._batches.with_others(self._mixing.data, others, kept)
                raise self._mixing.error(
                    self._mixing.data, new_data, kept, "the gradient"
                )
