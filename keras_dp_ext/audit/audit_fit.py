"""Audits a training as it is written: the whole path from the data to the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from keras_dp_ext.accounting import CorrelatedRelease, Poisson, WithReplacement
from keras_dp_ext.audit.accounted import Accounted, accounted
from keras_dp_ext.audit.correlated_tape import encoded_precision
from keras_dp_ext.audit.excess import excess
from keras_dp_ext.audit.replay import Replay
from keras_dp_ext.audit.results.fit_audit import FitAudit
from keras_dp_ext.audit.worst_examples import (
    Example,
    null_example,
    with_last,
    worst_examples,
)

# Relative rounding of sums of a few float32 gradients.
_TOLERANCE = 1e-3
# How unlikely a number of participations must be to contradict a sampling rate.
_IMPLAUSIBLE = 1e-6


def audit_fit(
    train: Callable[..., Any],
    data: Sequence[np.ndarray],
    *,
    examples: Mapping[str, Example] | Sequence[str] | None = None,
    adjacency: str = "auto",
    null: Example | None = None,
    max_releases: int = 128,
    seed: int = 0,
    user_ids: np.ndarray | None = None,
    rows_of_person: int = 1,
) -> FitAudit:
    """Replays a training on neighbouring data, and compares with what it claims.

    `train(*arrays)` is run once without and once with each of several examples that
    do as much harm as an example can. Noise and sampling are frozen, so the runs
    differ by the example alone. In the runs with the example every release is
    recorded and then replaced by the one of the run without it: so both have the
    same past at each release, as the theory of adaptive composition has it. Then

    - no release may have moved by more than its claimed sensitivity;
    - nothing else may differ: no weight, no variable of an optimizer, no other
      variable that is left, nor the number of releases, nor whether there was an
      error. Only metrics are exact, and never to be published;
    - the ledger must pay for all releases, for as many participations of the example
      as were seen, and suppose no more independently drawn lots than there were;
    - no two releases may have the same noise.

    What it does not find is no proof; what it finds is a fault, in the training or
    in this library. It takes a full training for every example: audit with few
    data, a small model and a few steps.

    Args:
        train: Builds, compiles and trains a model on the arrays that it is given. It
            returns the model (or its optimizer, or a `Ledger`), or a list of them:
            all whose ledgers are claimed to cover the training.
        data: Arrays with a row for each example, `(x, y)` say, to which the example
            is added as the last row.
        examples: Names of those in `worst_examples` to try, or examples of your
            own, by name. By default all of the former.
        adjacency: "remove" adds and removes the example; for pipelines of
            `keras_dp_ext.data`, whose lots can be kept the same. "zero-out" lets it
            take the place of one that contributes nothing; for all other data,
            whose batches would otherwise shift. "auto" finds out.
        null: The example that contributes nothing, for "zero-out". By default its
            numbers are NaN.
        max_releases: The most releases of one optimizer; they are kept in memory.
        seed: Of all that is random.
        user_ids: `[rows]` integers, if it is people who are protected. `train` gets
            them as its last argument, and neighbours differ in a person, who has an
            id of their own and `rows_of_person` rows, all of them the example.
        rows_of_person: How many rows that person has.

    Returns:
        A `FitAudit`; print it.

    Raises:
        ValueError: If an argument is out of range. Whatever `train` raises on the
            data without the example is passed on.

    Example:

    >>> import keras, numpy as np, keras_dp_ext as dp
    >>> def train(x, y):
    ...     model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    ...     model.compile(dp.optimizers.DPSGD(learning_rate=0.1), loss="mse")
    ...     model.fit(dp.data.poisson_batches(x, y, batch_size=5), verbose=0,
    ...               callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-2)])
    ...     return model
    >>> x = np.random.default_rng(0).normal(size=[20, 2]).astype("float32")
    >>> print(audit_fit(train, (x, x[:, :1]), examples=["huge", "not a number"]))
    within its claim
      shift of a release   1 of 1 claimed (worst example: "huge")
      releases             4 seen, 4 accounted
      participations       4 seen, 4 accounted
      lots                 4 drawn, 4 accounted as sampled
      written from data    nothing else

    References:

    - "dp-recorder" (2026), arXiv:2602.17454: the same idea found 13 violations in
      12 libraries.
    """
    if adjacency not in ("auto", "remove", "zero-out"):
        raise ValueError(
            'Argument `adjacency` must be "auto", "remove" or "zero-out". '
            f"Received: adjacency={adjacency}"
        )
    arrays = tuple(np.asarray(array) for array in data)
    tried = _chosen(arrays, examples)
    null = null_example(arrays) if null is None else null
    rows = 1
    if user_ids is not None:
        # One column more, in which all examples have the same value.
        arrays, rows = (*arrays, np.asarray(user_ids)), rows_of_person
        newcomer = np.max(user_ids) + 1
        tried = {name: (*example, newcomer) for name, example in tried.items()}
        null = null and (*null, newcomer)
    base = None
    if adjacency != "zero-out":
        base = _run(train, arrays, None, Replay(seed, max_releases))
        remove = base.pipelines > 0 and base.all_lots_masked
        if adjacency == "auto":
            adjacency = "remove" if remove else "zero-out"
    if adjacency == "zero-out":
        if null is None:
            raise ValueError(
                "Argument `null` must be given where no array has floating-point numbers: "
                "an example without a gradient. Received: null=None"
            )
        base = _run(train, arrays, null, Replay(seed, max_releases), rows)
    joins = adjacency == "remove"
    claim = accounted(base.returned)
    findings = _Findings(base, claim)
    for name, example in tried.items():
        replay = Replay(seed, max_releases, base, joins, rows)
        findings.compare(name, replay.run(train, with_last(arrays, example, rows)))
    if findings.all_reasons():
        findings.explain(
            Replay(seed, max_releases, follows=base).run(
                train, with_last(arrays, None if joins else null, rows)
            )
        )
    return findings.summary(tuple(tried), adjacency)


def _run(
    train: Callable[..., Any], arrays: Any, example: Any, replay: Replay, rows: int = 1
) -> Replay:
    replay.run(train, with_last(arrays, example, rows))
    if replay.error is not None:
        raise replay.error
    return replay


def _chosen(arrays: Any, examples: Any) -> dict[str, Example]:
    if isinstance(examples, Mapping):
        return dict(examples)
    known = worst_examples(arrays)
    if examples is None:
        return known
    for name in examples:
        if name not in known:
            raise ValueError(
                f"Argument `examples` must hold names out of {sorted(known)}. "
                f"Received: examples={examples}"
            )
    return {name: known[name] for name in examples}


class _Findings:
    """Collects what the runs with an example show, against the one without."""

    def __init__(self, base: Replay, claim: Accounted):
        self._base = base
        self._claim = claim
        self._shift, self._worst = 0.0, "none"
        self._participations = 0
        self._precision = 0.0
        self._leaks: dict[str, None] = {}
        self._reasons: dict[str, None] = {}
        self._releases = sum(tape.count for tape in base.tapes) + len(base.adapted)
        self._lots = round(base.lots) if base.pipelines else None
        self._check_counts()
        self._check_noise()

    def _because(self, reason: str) -> None:
        self._reasons[reason] = None

    def _check_counts(self) -> None:
        if self._releases > self._claim.releases:
            self._because(
                f"{self._releases} releases were made and "
                f"{self._claim.releases} are in the ledger"
            )
        if self._lots is not None and self._claim.sampled_lots > self._lots:
            self._because(
                f"{self._claim.sampled_lots} lots are accounted as sampled "
                f"independently and {self._lots} were drawn: several releases on one "
                "lot are amplified once only"
            )

    def _check_noise(self) -> None:
        """The same noise twice is no noise in the difference."""
        rows = [row for tape in self._base.tapes for row in tape.rows("noise")]
        rows = [row.tobytes() for row in rows if np.any(row)]
        if len(set(rows)) < len(rows):
            self._because("two releases have the same noise")
        for tape in self._base.tapes:
            # Independent noise has none where an update leaves variables out.
            is_correlated = tape.optimizer.mechanism.remembers_noise
            if is_correlated and np.any(np.isnan(tape.rows("deviations"))):
                self._because(
                    "noise that is claimed to be correlated is not that of its strategy"
                )

    def compare(self, name: str, run: Replay) -> None:
        """Adds what the run with one example shows."""
        if run.error is not None:
            self._because(
                f'the training fails with the example "{name}" and not without it: '
                f"{type(run.error).__name__}: {str(run.error)[:200]}"
            )
            return
        if [t.count for t in run.tapes] != [t.count for t in self._base.tapes]:
            self._because(
                f'the number of releases depends on the example "{name}": '
                f"{[t.count for t in run.tapes]} instead of "
                f"{[t.count for t in self._base.tapes]}"
            )
        participations, precision = 0, 0.0
        for tape, before in zip(run.tapes, self._base.tapes, strict=False):
            for shift, event in _shifts(tape, before):
                participations += shift > 0
                if shift > self._shift:
                    self._shift, self._worst = shift, name
                multiplier = getattr(event, "noise_multiplier", math.inf)
                if multiplier and not isinstance(event, CorrelatedRelease):
                    precision += shift**2 / multiplier**2
            precision += _precision_of_runs(tape, before)
        self._participations = max(self._participations, participations)
        self._precision = max(self._precision, precision)
        self._check_left_behind(run)

    def _check_left_behind(self, run: Replay) -> None:
        before = self._base.values
        for key, (name, value) in before.items():
            if key in run.values and not np.array_equal(
                value, run.values[key][1], **_nan(value)
            ):
                self._leaks[name] = None

    def explain(self, control: Replay) -> None:
        """Tells a training that differs from itself from one that leaks."""
        if control.error is not None or any(
            shift > 0
            for tape, before in zip(control.tapes, self._base.tapes, strict=False)
            for shift, _ in _shifts(tape, before)
        ):
            self._because(
                "the training differs from run to run, also without the example: seed "
                "whatever it draws by itself, and audit again"
            )

    def all_reasons(self) -> tuple[str, ...]:
        """Why the claim does not hold, with the verdicts on the greatest figures."""
        reasons = dict(self._reasons)
        claim = self._claim
        # One example may be in a lot several times, which its analysis knows.
        rows = max(
            s.batch_size if isinstance(s, WithReplacement) else 1
            for s in claim.samplings or [None]
        )
        if self._shift > rows * (1 + _TOLERANCE):
            reasons[
                f'the example "{self._worst}" moves a release by {self._shift:.4g} '
                "times the claimed sensitivity"
            ] = None
        if self._leaks:
            reasons[
                "what is left of the training depends on the example beside all "
                f"releases: {', '.join(self._leaks)}"
            ] = None
        if self._participations > claim.participations:
            reasons[
                f"one example takes part in {self._participations} releases and "
                f"{claim.participations} are accounted"
            ] = None
        if self._precision > rows * (1 + _TOLERANCE) * claim.precision:
            reasons[
                "all releases together tell more about the example than the ledger "
                f"pays for: {self._precision:.4g} of {claim.precision:.4g} in units "
                "of inverse noise variance"
            ] = None
        rates = [s.rate for s in claim.samplings if isinstance(s, Poisson)]
        if self._lots is None and rates:
            chance = stats.binom.sf(
                self._participations - 1, self._releases, max(rates)
            )
            if chance < _IMPLAUSIBLE:
                reasons[
                    f"{self._participations} participations in {self._releases} "
                    f"releases are no Poisson sampling at rate {max(rates):.3g}"
                ] = None
        return tuple(reasons)

    def summary(self, examples: tuple[str, ...], adjacency: str) -> FitAudit:
        """The result."""
        return FitAudit(
            shift=self._shift,
            worst_example=self._worst,
            releases=self._releases,
            participations=self._participations,
            lots=self._lots,
            accounted=self._claim,
            leaks=tuple(self._leaks),
            reasons=self.all_reasons(),
            examples=examples,
            adjacency=adjacency,
        )


def _shifts(tape: Any, before: Any) -> Any:
    """For each release that both runs made: its shift, and what is claimed of it."""
    claim = tape.optimizer._own_claim()
    sums, others, deviations, steps = (
        side.rows(what)
        for side, what in (
            (tape, "sums"),
            (before, "sums"),
            (before, "deviations"),
            (before, "steps"),
        )
    )
    for ours, theirs, deviation, step in zip(
        sums, others, deviations, steps, strict=False
    ):
        ((part, _),) = claim.between(int(step), int(step) + 1)
        difference = ours.astype(np.float64) - theirs.astype(np.float64)
        yield excess(difference, deviation.astype(np.float64), part.proven), part.proven


def _precision_of_runs(tape: Any, before: Any) -> float:
    """How far an example moves runs with correlated noise, squared."""
    event = tape.optimizer._own_claim().proven
    if not isinstance(event, CorrelatedRelease):
        return 0.0
    steps = before.rows("run_steps")[: tape.count]
    sums, others = (side.rows("sums").astype(np.float64) for side in (tape, before))
    scales = before.rows("deviations")[: len(steps)]
    moved = (sums[: len(steps)] - others[: len(steps)]) / scales
    return encoded_precision(moved, steps, event)


def _nan(value: np.ndarray) -> dict[str, bool]:
    return {"equal_nan": True} if value.dtype.kind in "fc" else {}
