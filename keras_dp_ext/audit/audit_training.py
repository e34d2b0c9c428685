"""Audits a whole training by one run of it, with canaries in the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_dp_ext._checks import check_in
from keras_dp_ext.audit.example_losses import example_losses
from keras_dp_ext.audit.one_run import one_run_epsilon
from keras_dp_ext.audit.results.training_audit import TrainingAudit

# Shares of the canaries that are guessed; each costs its part of the confidence.
_GUESSED_SHARES = (0.02, 0.1, 0.3, 1.0)


def audit_training(
    make_model: Callable[[], keras.Model],
    x: np.ndarray,
    y: np.ndarray,
    *,
    fit: Callable[[keras.Model, np.ndarray, np.ndarray], Any] | None = None,
    batch_size: int = 256,
    epochs: int = 1,
    num_canaries: int = 1000,
    canaries: tuple[np.ndarray, np.ndarray] | None = None,
    guesses: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
    verbose: int | str = "auto",
) -> TrainingAudit:
    """Trains once, and bounds epsilon by what the model remembers of canaries.

    Every canary is put into the training data or left out by the toss of a coin.
    After the training the adversary guesses the coins: canaries whose loss fell
    most were in, those whose loss rose most were out. Private training limits how
    many guesses can be right.

    Unlike `audit_mechanism` this sees the training as it is run, with all of
    Keras around it. The bound is weaker: it is far below the claimed epsilon
    unless canaries are many and easy to remember.

    Args:
        make_model: Returns a new, compiled model.
        x: Training inputs, `[N, ...]`.
        y: Training targets, `[N, ...]`.
        fit: `fit(model, x, y)` trains the model on data with canaries. By default
            `model.fit` on Poisson batches, with Keras' progress bar.
        batch_size: Expected batch size of the default `fit`.
        epochs: Epochs of the default `fit`.
        num_canaries: How many examples of the training data are turned into
            canaries, by changing their labels to wrong ones.
        canaries: `(x, y)` of your own canaries instead; the training data then
            stays whole.
        guesses: How many canaries to guess, fixed beforehand. By default several
            numbers are tried, and the confidence is corrected for it.
        delta: Delta at which epsilon is bounded.
        confidence: Probability that the true epsilon is no less than reported.
        seed: Of the choice of canaries; by default the operating system's entropy.
        verbose: As in `model.fit`.

    Returns:
        A `TrainingAudit`.

    Raises:
        ValueError: If labels are not integers and no `canaries` are given, or an
            argument is out of range.

    Example:

    >>> import keras, numpy as np, keras_dp_ext as dp
    >>> def make_model():
    ...     model = keras.Sequential(
    ...         [keras.Input([8]), keras.layers.Dense(3, activation="softmax")])
    ...     model.compile(dp.optimizers.DPSGD(learning_rate=0.1),
    ...                   loss="sparse_categorical_crossentropy")
    ...     return model
    >>> x = np.random.default_rng(0).normal(size=[400, 8]).astype("float32")
    >>> audit = audit_training(make_model, x, np.argmax(x[:, :3], axis=1),
    ...                        batch_size=50, num_canaries=100, seed=0, verbose=0)
    >>> audit.verdict
    'holds'

    References:

    - Steinke, Nasr, Jagielski (2023), "Privacy Auditing with One (1) Training
      Run", Algorithm 1.
    """
    check_in("confidence", confidence, "(0, 1)")
    random = np.random.default_rng(seed)
    x, y = np.asarray(x), np.asarray(y)
    if canaries is None:
        x, y, canaries = _mislabel(x, y, num_canaries, random)
    canary_x, canary_y = (np.asarray(part) for part in canaries)
    included = random.random(len(canary_x)) < 0.5
    order = random.permutation(len(x) + int(included.sum()))
    train_x = np.concatenate([x, canary_x[included]])[order]
    train_y = np.concatenate([y, canary_y[included]])[order]

    model = make_model()
    before = example_losses(model, canary_x, canary_y)
    if fit is None:
        _fit(model, train_x, train_y, batch_size, epochs, delta, verbose)
    else:
        fit(model, train_x, train_y)
    scores = before - example_losses(model, canary_x, canary_y)
    # A model that turned into NaN remembers nothing.
    scores = np.nan_to_num(scores, nan=0.0)
    epsilon, guessed, correct = guess_canaries(
        scores, included, delta, 1.0 - confidence, guesses, random
    )
    return TrainingAudit(
        epsilon=epsilon,
        proven_epsilon=_claimed(model.optimizer, delta),
        delta=delta,
        confidence=confidence,
        canaries=len(canary_x),
        guesses=guessed,
        correct=correct,
        included=included,
        scores=scores,
    )


def guess_canaries(
    scores: np.ndarray,
    included: np.ndarray,
    delta: float,
    error: float,
    guesses: int | None = None,
    random: np.random.Generator | None = None,
) -> tuple[float, int, int]:
    """The best bound of several strategies, each paid for.

    A strategy guesses "in" for the greatest scores and, half of them also, "out"
    for the least, and abstains from the rest.

    Args:
        scores: `[canaries]`, greater for those that are believed to be in.
        included: `[canaries]`, the truth.
        delta: Delta at which epsilon is bounded.
        error: Probability with which the bound may fail.
        guesses: The only number of guesses, or `None` for several.
        random: Breaks ties.

    Returns:
        The bound on epsilon, and the number of guesses and of correct guesses.
    """
    count = len(scores)
    if guesses is not None and not 1 <= guesses <= count:
        raise ValueError(
            "Argument `guesses` must be at least 1 and at most the number of "
            f"canaries, {count}. Received: guesses={guesses}"
        )
    numbers = (
        sorted({max(1, round(share * count)) for share in _GUESSED_SHARES})
        if guesses is None
        else [guesses]
    )
    strategies = sorted({(n - out, out) for n in numbers for out in (0, n // 2)})
    random = random or np.random.default_rng()
    ranked = included[np.lexsort([random.random(count), scores])]
    results = []
    for ins, outs in strategies:
        correct = int(ranked[count - ins :].sum()) + int((~ranked[:outs]).sum())
        epsilon = one_run_epsilon(
            count, ins + outs, correct, delta, error / len(strategies)
        )
        results.append((epsilon, ins + outs, correct))
    return max(results)


def _mislabel(x: Any, y: Any, num_canaries: int, random: np.random.Generator) -> Any:
    """Takes canaries out of the data, each with a wrong label of that data."""
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            "Argument `canaries` must be given where `y` does not hold integer "
            f"labels. Received: y of dtype {y.dtype}"
        )
    labels = np.unique(y)
    if not 1 <= num_canaries < len(x) or len(labels) < 2:
        raise ValueError(
            "Argument `num_canaries` must be positive and less than the number of "
            "examples, which must have at least two labels. Received: "
            f"num_canaries={num_canaries} for {len(x)} examples of {len(labels)} labels"
        )
    chosen = random.choice(len(x), num_canaries, replace=False)
    right = np.searchsorted(labels, y[chosen])
    wrong = labels[(right + random.integers(1, len(labels), right.shape)) % len(labels)]
    kept = np.setdiff1d(np.arange(len(x)), chosen)
    return x[kept], y[kept], (x[chosen], wrong.astype(y.dtype))


def _fit(
    model: keras.Model,
    x: Any,
    y: Any,
    batch_size: int,
    epochs: int,
    delta: float,
    verbose: Any,
) -> None:
    from keras_dp_ext.callbacks import PrivacyAccountant
    from keras_dp_ext.data import poisson_batches

    private = hasattr(model.optimizer, "ledger")
    model.fit(
        poisson_batches(x, y, batch_size=min(batch_size, len(x))),
        epochs=epochs,
        shuffle=False,  # Keras would warn that it cannot; the lots are random.
        verbose=verbose,
        callbacks=[PrivacyAccountant(delta=delta)] if private else None,
    )


def _claimed(optimizer: Any, delta: float) -> float | None:
    """What the ledger claims; `None` without one."""
    ledger = getattr(optimizer, "ledger", None)
    if ledger is None or not ledger.segments:
        return None
    return ledger.epsilon(int(optimizer.releases.numpy()), delta)
