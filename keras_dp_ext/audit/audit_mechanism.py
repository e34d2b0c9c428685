"""Measures the privacy of a mechanism from outside, by attacking it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dp_ext import accounting
from keras_dp_ext._checks import check_count, check_in, check_one_of
from keras_dp_ext._compat import keras_internals
from keras_dp_ext.accounting import (
    Claim,
    ComposedRelease,
    CorrelatedRelease,
    FullBatch,
    FullBatchRelease,
    GaussianRelease,
    Poisson,
)
from keras_dp_ext.accounting.figures import figure_epsilon
from keras_dp_ext.audit.density import log_likelihood_ratio, noise_of
from keras_dp_ext.audit.neighbours import Neighbours, worst_neighbours
from keras_dp_ext.audit.results.mechanism_audit import MechanismAudit
from keras_dp_ext.audit.simulation import STAGES, Simulation
from keras_dp_ext.audit.threshold import best_threshold
from keras_dp_ext.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from keras_dp_ext.accounting.events import Event

# Draws from which the spread of the noise is measured, and numbers at most.
_NOISE_DRAWS = 2048
_NOISE_NUMBERS = 2**24


def audit_mechanism(
    mechanism: Any,
    shapes: Sequence[Sequence[int]] | None = None,
    *,
    delta: float = 1e-5,
    runs: int = 1_000_000,
    steps: int = 1,
    sampling_rate: float = 1.0,
    confidence: float = 0.999,
    examples_per_microbatch: int | None = None,
    stage: str = "noise",
    seed: int = 0,
    jit_compile: bool = True,
) -> MechanismAudit:
    """Attacks a mechanism, and reports the epsilon that this rules out.

    Runs the mechanism's own stages (bound, noise, refine) on two batches that
    differ in one example, chosen to stand out as much as possible, and tries to
    tell from what is released which batch it was. The adversary is the one of
    the definition: it knows all other examples, the state and the code. Its
    score is the logarithm of the likelihood ratio, or for Gaussian noise the
    projection on the direction in which the example moves the sum. A threshold is
    chosen on half of the runs, and measured on the other half.

    A lower bound above a claimed epsilon refutes the claim. One below it proves
    nothing, but comes close to the claim where that is tight.

    Args:
        mechanism: A `Mechanism`, or a private optimizer, whose mechanism is taken.
            Neither is changed.
        shapes: Shapes of the trainable variables. By default those of the
            optimizer if it is built, otherwise one variable of 16 parameters.
            A small model costs little and usually shows as much.
        delta: Delta at which epsilon is bounded.
        runs: Independent runs of each of the two batches.
        steps: Releases in a run: the epsilon of their composition.
        sampling_rate: Probability with which the example takes part in a release.
        confidence: Probability that the true epsilon is no less than reported.
        examples_per_microbatch: Above 1 the example turns one row into another.
            By default as in the optimizer.
        stage: "noise": the adversary sees the noised sum, which is what epsilon
            is claimed for. "refine": it sees what refining leaves of it.
        seed: The same seed gives the same report.
        jit_compile: Whether to compile the runs with XLA.

    Returns:
        A `MechanismAudit`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> import keras_dp_ext as dp
    >>> mechanism = dp.mechanisms.DPSGD(l2_norm_clip=1.0, noise_multiplier=1.0)
    >>> audit = audit_mechanism(mechanism, runs=20_000)
    >>> audit.verdict, audit.epsilon > 0.8 * audit.proven_epsilon
    ('holds', True)

    References:

    - Jagielski, Ullman, Oprea (2020), "Auditing Differentially Private Machine
      Learning".
    - Nasr et al. (2023), "Tight Auditing of Differentially Private Machine
      Learning" (the fit of Gaussian differential privacy).
    """
    _check(delta, runs, steps, sampling_rate, confidence, stage)
    mechanism, shapes, group = _resolve(mechanism, shapes, examples_per_microbatch)
    if sampling_rate < 1 and mechanism.remembers_noise:
        raise ValueError(
            "Argument `sampling_rate` must be 1 for correlated noise: the example takes "
            f"part in every release of a run. Received: sampling_rate={sampling_rate}"
        )
    if steps > 1 and mechanism.needs_direction:
        raise ValueError(
            "Argument `steps` must be 1 for a mechanism that needs the full-batch "
            f"gradient before every release. Received: steps={steps}"
        )
    if stage == "refine" and mechanism.statistics():
        raise ValueError(
            'Argument `stage` must be "noise" for a mechanism that releases further sums '
            "beside the gradients, such as a count: refining takes them out, so less is "
            f"left to look at. Received: stage={stage}, mechanism={mechanism.name}"
        )
    simulation = Simulation(mechanism, shapes, seed, jit_compile)
    claim = simulation.mechanism.claim(simulation.num_parameters, group)
    draws = max(64, min(_NOISE_DRAWS, _NOISE_NUMBERS // simulation.num_parameters))
    neighbours = worst_neighbours(
        simulation.mechanism,
        simulation.shapes,
        simulation.noise(draws),
        claim,
        group,
    )
    chunks = simulation.runs(neighbours, runs, steps, sampling_rate, stage)
    events = [part.proven for part, n in claim.between(0, steps) for _ in range(n)]
    absent, present = (
        _scores(chunks[world], events, neighbours, sampling_rate)
        for world in ("absent", "present")
    )
    methods = ["clopper-pearson"]
    if sampling_rate == 1 and all(_is_gaussian(event) for event in events):
        methods.append("gaussian-dp")
    found = best_threshold(absent, present, delta, 1.0 - confidence, methods)
    proven, published = _claimed(mechanism, claim, steps, sampling_rate, delta)
    return MechanismAudit(
        mechanism=mechanism.name,
        epsilon=found.epsilon,
        proven_epsilon=proven,
        published_epsilon=published,
        delta=delta,
        confidence=confidence,
        method=found.method,
        true_positive_rate=found.true_positive_rate,
        false_positive_rate=found.false_positive_rate,
        mu=found.mu,
        runs=runs,
        steps=steps,
        sampling_rate=sampling_rate,
        num_parameters=simulation.num_parameters,
        scores=(absent, present),
    )


def _resolve(
    audited: Any, shapes: Sequence[Any], group: Any
) -> tuple[Mechanism, list, int]:
    """The mechanism, the shapes and the microbatches of what is to be audited."""
    optimizer = None
    if not isinstance(audited, Mechanism):
        optimizer = audited
        audited = getattr(optimizer, "mechanism", None)
    if not isinstance(audited, Mechanism):
        raise ValueError(
            "Argument `mechanism` must be a Mechanism or a private optimizer. "
            f"Received: mechanism={optimizer!r}"
        )
    if shapes is None:
        built = optimizer is not None and optimizer.built
        shapes = (
            [variable.shape for variable in keras_internals.variables_of(optimizer)]
            if built
            else [(16,)]
        )
    if group is None:
        group = 1 if optimizer is None else optimizer._claimed_group()
    return audited, list(shapes), group


def _scores(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    events: Sequence[Any],
    neighbours: Neighbours,
    sampling_rate: float,
) -> np.ndarray:
    """The adversary's confidence, for each run, that the example was there."""
    scores = []
    for observed, shift in chunks:
        if events[0].is_run:
            scores.append(_run_score(events[0], observed, shift, neighbours))
            continue
        total = np.zeros(len(observed))
        for step, event in enumerate(events):
            x = observed[:, step].astype(np.float64)
            moved = shift[:, min(step, shift.shape[1] - 1)].astype(np.float64)
            # A sum that is not a number gives the example away; so does its score.
            moved = np.nan_to_num(moved, nan=1.0, posinf=1.0, neginf=-1.0)
            noise = noise_of(event)
            loss = (
                _projection(x, moved, neighbours)
                if noise is None
                else log_likelihood_ratio(noise, x, moved)
            )
            if sampling_rate < 1:
                loss = np.logaddexp(
                    np.log1p(-sampling_rate), np.log(sampling_rate) + loss
                )
            total += loss
        scores.append(total)
    return np.concatenate(scores)


def _run_score(
    run: CorrelatedRelease,
    observed: np.ndarray,
    shift: np.ndarray,
    neighbours: Neighbours,
) -> np.ndarray:
    """The log-likelihood ratio of a whole run, up to a factor.

    C times what was released has independent noise, and C times a shift in every release
    is what the example does to it.
    """
    steps = observed.shape[1]
    encoded = run.noise.encode(np.moveaxis(observed.astype(np.float64), 1, 0))
    moved = np.broadcast_to(shift, observed.shape).astype(np.float64)
    moved = np.nan_to_num(moved, nan=1.0, posinf=1.0, neginf=-1.0)
    moved = run.noise.encode(np.moveaxis(moved, 1, 0))
    spread = max(neighbours.spread, 1e-30)
    return np.sum(
        [
            (moved[t] @ neighbours.weights)
            * (encoded[t] @ neighbours.weights - 0.5 * (moved[t] @ neighbours.weights))
            for t in range(steps)
        ],
        axis=0,
    ) / (spread**2)


def _projection(
    observed: np.ndarray, shift: np.ndarray, neighbours: Neighbours
) -> np.ndarray:
    """The log-likelihood ratio of the projection, for Gaussian noise.

    Written as `m^2 (p - 1/2)`, with p on average 0 without and 1 with the example:
    where a mechanism changes noise and bound together from release to release, p
    stays right although the spread was measured in the first one.
    """
    moved = shift @ neighbours.weights
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.where(moved == 0, 0.0, (observed @ neighbours.weights) / moved)
    # Noise of scale 0 makes any shift certain; keep the numbers finite.
    strength = np.median(np.abs(moved)) / max(neighbours.spread, 1e-30)
    return min(strength, 1e6) ** 2 * (place - 0.5)


def _is_gaussian(event: Any) -> bool:
    """Whether the noise is Gaussian, of whatever scale in each coordinate."""
    if isinstance(event, ComposedRelease):
        return all(_is_gaussian(part) for part in event.events)
    if isinstance(event, FullBatchRelease):
        return _is_gaussian(event.event)
    return isinstance(event, (CorrelatedRelease, GaussianRelease)) or (
        getattr(event, "as_gaussian", lambda: None)() is not None
    )


def _claimed(
    mechanism: Mechanism,
    claim: Claim,
    steps: int,
    sampling_rate: float,
    delta: float,
) -> tuple[float, float]:
    """The proven and the published epsilon of the audited releases."""
    sampling = FullBatch() if sampling_rate == 1 else Poisson(sampling_rate)

    def epsilon(event: Event) -> float:
        entries = [(event, sampling, steps)]
        try:
            return accounting.epsilon(entries, delta, accountant="pld")
        except NotImplementedError:
            return accounting.epsilon(entries, delta, accountant="rdp")

    proven = epsilon(claim.proven)
    published = proven
    if claim.published is not None:
        published = figure_epsilon([(claim, sampling, steps)], "published", delta)
    # Some papers have an accounting of their own, for a sampling of their own. The
    # greater figure is harder to refute.
    own = mechanism.published_epsilon(steps)
    budget = mechanism.published_budget
    if own is not None and budget is not None and budget.delta == delta:
        published = max(published, own)
    return proven, published


def _check(
    delta: float,
    runs: int,
    steps: int,
    sampling_rate: float,
    confidence: float,
    stage: str,
) -> None:
    check_in("delta", delta, "[0, 1)")
    check_count("runs", runs, least=100)
    check_count("steps", steps)
    check_in("sampling_rate", sampling_rate, "(0, 1]")
    check_in("confidence", confidence, "(0, 1)")
    check_one_of("stage", stage, STAGES)
