"""Trainings behind the figures: they can be killed at any moment, and go on.

A training that has ended is in a small CSV that is committed, and figures are drawn from
it. The one at hand is saved after every epoch (`run_files.py`).

A training is known by its settings, without the number of epochs: a longer one contains
each shorter one, so that epsilon 4 is the first part of epsilon 8. What a kill destroys
is the epoch at hand. Its updates are drawn anew, with new lots and new noise, and the
ledger goes on from the saved one: nobody has seen what was lost, and no update that is
left is missing in epsilon.

The same command may run several times at once: each process takes trainings that no
other one has (`run_all --jobs`).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.run_files import (
    Checkpoint,
    FinishedRuns,
    Identity,
    claimed,
    first_epochs,
)

DELTA = 1e-5
#: Examples that are evaluated at a time.
_CHUNK = 1000


@dataclasses.dataclass(frozen=True)
class Case:
    """One curve of a figure.

    Attributes:
        labels: The columns that name it in the figure's CSV.
        build: Makes a model with logits for a `DataSet`.
        optimizer: Makes an optimizer, private or not.
        batch_size: Expected examples in a lot (Poisson).
        epochs: Passes over the data.
        settings: All that decides the training, but for data, lots and seed; by default
            the labels. Trainings of equal settings are shared by figures.
        adapt: Adapts layers of the new model to the data, before the training begins.
        callbacks: Makes further callbacks from the data.
        evaluate_every: Evaluates also after so many steps of an epoch.
        training_accuracy: Whether the training images are evaluated, too.
    """

    labels: dict[str, Any]
    build: Callable[[Any], Any]
    optimizer: Callable[[], Any]
    batch_size: int
    epochs: int
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    adapt: Callable[[Any, Any], None] | None = None
    callbacks: Callable[[Any], Sequence[Any]] | None = None
    evaluate_every: int | None = None
    training_accuracy: bool = False

    @property
    def name(self) -> str:
        return ", ".join(map(_plain, self.labels.values()))

    def identity(self, data: Any, seed: int) -> Identity:
        """What the training is, whichever figure shows it."""
        settings = {
            **(self.settings or self.labels),
            "lot": self.batch_size,
            "data": data.name,
            "examples": len(data.x_train),
            "tested_on": len(data.x_test),
        }
        text = "; ".join(f"{key}={_plain(value)}" for key, value in settings.items())
        return Identity(text, seed)


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# Running ------------------------------------------------------------------

# In fast mode figures of one script share trainings, in memory only.
_in_memory: dict[str, FinishedRuns] = {}


def finished_runs(arguments: argparse.Namespace, store: str) -> FinishedRuns:
    """The finished trainings of a store."""
    if arguments.fast:
        return _in_memory.setdefault(store, FinishedRuns(None))
    return FinishedRuns(arguments.output_dir / "runs" / f"{store}.csv")


def run_cases(
    arguments: argparse.Namespace,
    store: str,
    data: Any,
    cases: Sequence[Case],
    seeds: Sequence[int] | None = None,
    wait: bool = False,
) -> list[dict[str, Any]]:
    """Trains every case with every seed, or takes what was trained before.

    With `--finished-only` nothing is trained: rows are those of finished trainings.
    With `--plan` the missing ones are listed, and with `--measure` timed as well.
    What another process is training is left to it, and missing in the rows.

    Args:
        arguments: Of the script.
        store: Name of the CSV with the finished trainings.
        data: A `DataSet`, or a function that makes one from the seed.
        cases: What to train.
        seeds: By default `range(arguments.seeds)`.
        wait: Waits for what other processes train, and trains what they give up.

    Returns:
        One row for each evaluation: the labels, the seed, epoch (`None` between
        epochs), step, accuracy on test and training images (`None` unless asked for),
        and both epsilons (infinite without privacy; published where the paper differs).
    """
    seeds = range(arguments.seeds) if seeds is None else seeds
    finished = finished_runs(arguments, store)
    # Seed by seed: the figure has all its curves as early as possible.
    pairs = [(case, seed) for seed in seeds for case in cases]
    data_of = data if callable(data) else lambda seed: data

    def curve_of(case: Case, seed: int) -> list[dict] | None:
        return finished.curve(case.identity(data_of(seed), seed), case.epochs)

    missing = [pair for pair in pairs if curve_of(*pair) is None]
    if arguments.plan or arguments.measure:
        _print_plan(arguments, store, missing, len(pairs), data_of)
    elif not arguments.finished_only:
        left_to_others = []
        for number, (case, seed) in enumerate(missing):
            title = (
                f"[{number + 1}/{len(missing)}] {case.name}, seed {seed} "
                f"({len(pairs) - len(missing)} of {len(pairs)} finished before)"
            )
            if not _train(arguments, store, finished, data_of(seed), case, seed, title):
                left_to_others.append((case, seed, title))
        for case, seed, title in left_to_others if wait else ():
            _train(arguments, store, finished, data_of(seed), case, seed, title, wait)
        finished.read_again()
    curves = {(id(case), seed): curve_of(case, seed) or () for case, seed in pairs}
    return [
        {**case.labels, "seed": seed, **point}
        for case in cases
        for seed in seeds
        for point in curves[id(case), seed]
    ]


def _print_plan(
    arguments: argparse.Namespace,
    store: str,
    missing: Sequence[tuple[Case, int]],
    total: int,
    data_of: Callable[[int], Any],
) -> None:
    """Lists what is missing, with the time it takes on an idle machine."""
    from benchmarks.papers.step_times import StepTimes

    times = StepTimes(arguments.output_dir / "runs")
    print(f"{store}: {total - len(missing)} of {total} trainings are finished")
    hours: list[float | None] = []
    for case, seed in missing:
        data = data_of(seed)
        if arguments.measure:
            times.measure(case, data)
        hours.append(times.hours(case, data))
        known = "not timed" if hours[-1] is None else f"{hours[-1]:.2f} h"
        print(f"  missing: {case.name}, seed {seed}, {case.epochs} epochs, {known}")
    if missing:
        unknown = hours.count(None)
        rest = f", and {unknown} that nobody has timed" if unknown else ""
        print(f"  {store}: {sum(h or 0.0 for h in hours):.1f} h left{rest}", flush=True)


def _train(
    arguments: argparse.Namespace,
    store: str,
    finished: FinishedRuns,
    data: Any,
    case: Case,
    seed: int,
    title: str,
    wait: bool = False,
) -> bool:
    """Finishes one training; false if another process is at it."""
    identity = case.identity(data, seed)
    directory = arguments.cache_dir / store / f"{identity.run}_{seed}"
    checkpoint = Checkpoint(None if arguments.fast else directory)
    with claimed(None if arguments.fast else directory, wait) as mine:
        if not mine:
            return False
        finished.read_again()
        if finished.curve(identity, case.epochs) is not None:
            return True  # Another case of the figure is the same, or another process.
        print(title, flush=True)
        saved = checkpoint.read()
        curve = first_epochs(saved, case.epochs)
        if curve is None:
            # Compiling takes longer than the few steps of fast mode.
            jit = False if arguments.fast else "auto"
            curve = fit(data, case, seed, jit, checkpoint)
            finished.add(identity, curve)
            checkpoint.remove()
        else:
            # A longer training is on its way: its first epochs are finished.
            finished.add(identity, curve)
    return True


def fit(
    data: Any, case: Case, seed: int, jit: Any, checkpoint: Checkpoint
) -> list[dict]:
    """Trains from the checkpoint, or the beginning; returns all evaluations."""
    import keras

    import keras_dp_ext as dp

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model, optimizer = case.build(data), case.optimizer()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=jit)
    optimizer.build(model.trainable_variables)
    curve = checkpoint.read()
    if curve:
        checkpoint.load(model)
        print(f"    goes on after epoch {curve[-1]['epoch']}", flush=True)
    elif case.adapt is not None:
        case.adapt(model, data)
    labels = data.y_train.astype(np.int32)
    callbacks: list[Any] = [_recorder(model, data, case, curve, checkpoint)]
    if hasattr(optimizer, "privacy_claim"):
        callbacks.append(dp.callbacks.PrivacyAccountant(delta=DELTA))
    if case.callbacks is not None:
        callbacks += case.callbacks(data)
    model.fit(
        dp.data.poisson_batches(data.x_train, labels, batch_size=case.batch_size),
        initial_epoch=curve[-1]["epoch"] if curve else 0,
        epochs=case.epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return curve


def _recorder(
    model: Any, data: Any, case: Case, curve: list[dict], checkpoint: Checkpoint
) -> Any:
    """A callback that evaluates, saves, and tells how far the training is."""
    import keras

    accuracy = accuracy_function(model)
    spent = curve[-1]["processor_s"] if curve else 0.0
    begun_at = curve[-1]["epoch"] if curve else 0
    clock, processor = time.monotonic(), time.process_time()
    shown = clock

    def evaluate(epoch: int | None, logs: dict) -> None:
        curve.append(
            {
                "epoch": epoch,
                "step": int(model.optimizer.iterations.numpy()),
                "accuracy": accuracy(data.x_test, data.y_test),
                "training_accuracy": accuracy(data.x_train, data.y_train)
                if case.training_accuracy
                else None,
                "epsilon": float(logs.get("epsilon", math.inf)) if epoch else None,
                "published_epsilon": logs.get("published_epsilon") if epoch else None,
                "processor_s": spent + time.process_time() - processor,
            }
        )

    def after_batch(batch: int, logs: dict) -> None:
        if (batch + 1) % case.evaluate_every == 0:
            evaluate(None, logs)

    def after_epoch(epoch: int, logs: dict) -> None:
        nonlocal shown
        evaluate(epoch + 1, logs)
        checkpoint.save(model, curve)
        now, last = time.monotonic(), epoch + 1 == case.epochs
        if last or now - shown > 20:
            shown = now
            each = (now - clock) / (epoch + 1 - begun_at)
            left = (
                "" if last else f", {duration(each * (case.epochs - epoch - 1))} left"
            )
            print(
                f"    epoch {epoch + 1}/{case.epochs}, accuracy "
                f"{curve[-1]['accuracy']:.3f}, epsilon {curve[-1]['epsilon']:.4g}, "
                f"{duration(now - clock)}{left}",
                flush=True,
            )

    return keras.callbacks.LambdaCallback(
        on_epoch_end=after_epoch,
        on_train_batch_end=after_batch if case.evaluate_every else None,
    )


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def accuracy_function(model: Any) -> Callable[[np.ndarray, np.ndarray], float]:
    """Makes a function for the share of images that the model gets right."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True)
    def classes(images: Any) -> Any:
        return tf.argmax(model(images, training=False), axis=1)

    def accuracy(images: np.ndarray, labels: np.ndarray) -> float:
        right = 0
        for start in range(0, len(images), _CHUNK):
            found = classes(tf.constant(images[start : start + _CHUNK])).numpy()
            right += int(np.sum(found == labels[start : start + _CHUNK]))
        return right / len(images)

    return accuracy
