"""What a lot of each training takes, for the plan of those that are missing.

`--measure` trains a few lots of every case whose time is not known yet, and writes
`OUTPUT/runs/step_times.csv`. Times are by the clock: measure on an idle machine.
"""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers import runs

LOTS, ENOUGH_SECONDS = 40, 4.0
EVALUATED = 2000
_KEYS = ("method", "model", "data", "lot")
_TIMES = ("lot_s", "image_s")


class StepTimes:
    """The table: seconds of a lot, and of the evaluation of an image.

    Args:
        directory: The folder of finished trainings.
    """

    def __init__(self, directory: Path):
        self._path = directory / "step_times.csv"
        self._rows: dict[tuple[str, ...], dict[str, float]] = {}
        if self._path.exists():
            with open(self._path, newline="") as file:
                for row in csv.DictReader(file):
                    key = tuple(row[name] for name in _KEYS)
                    self._rows[key] = {name: float(row[name]) for name in _TIMES}

    def hours(self, case: runs.Case, data: Any) -> float | None:
        """What a training takes, or `None` if its method was not timed.

        Lots of another size are taken to cost in proportion to their size.
        """
        *method, lot = _key(case, data)
        timed = [key for key in self._rows if list(key[:-1]) == method]
        if not timed:
            return None
        nearest = min(timed, key=lambda key: abs(math.log(int(key[-1]) / int(lot))))
        times = self._rows[nearest]
        lots = max(1, round(len(data.x_train) / case.batch_size))
        evaluations = 1 + (lots // case.evaluate_every if case.evaluate_every else 0)
        images = evaluations * len(data.x_test)
        if case.training_accuracy:
            images += evaluations * len(data.x_train)
        lot_s = times["lot_s"] * int(lot) / int(nearest[-1])
        return case.epochs * (lots * lot_s + images * times["image_s"]) / 3600

    def measure(self, case: runs.Case, data: Any) -> None:
        """Times a case, unless that was done."""
        key = _key(case, data)
        if key in self._rows:
            return
        self._rows[key] = times = measure(case, data)
        print(f"    {case.name}: {times['lot_s'] * 1e3:.0f} ms a lot", flush=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "w", newline="") as file:
            writer = csv.DictWriter(file, (*_KEYS, *_TIMES), lineterminator="\n")
            writer.writeheader()
            for names, values in self._rows.items():
                rounded = {name: f"{value:.3g}" for name, value in values.items()}
                writer.writerow({**dict(zip(_KEYS, names, strict=True)), **rounded})


def _key(case: runs.Case, data: Any) -> tuple[str, ...]:
    identity = case.identity(data, seed=0)
    return tuple(identity.value(name) or "" for name in _KEYS)


def measure(case: runs.Case, data: Any) -> dict[str, float]:
    """Seconds of a lot and of an evaluation on test images, after a warm-up."""
    import keras

    import keras_dp_ext as dp

    keras.backend.clear_session()
    model, optimizer = case.build(data), case.optimizer()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    optimizer.build(model.trainable_variables)
    if case.adapt is not None:
        case.adapt(model, data)
    lots = dp.data.poisson_batches(
        data.x_train,
        data.y_train.astype(np.int32),
        batch_size=case.batch_size,
        steps_per_epoch=1 + LOTS,
    )
    ends: list[float] = []

    def after_lot(batch: int, logs: dict) -> None:
        ends.append(time.perf_counter())
        model.stop_training = ends[-1] - ends[0] > ENOUGH_SECONDS

    clock = keras.callbacks.LambdaCallback(on_train_batch_end=after_lot)
    callbacks = [clock, *(case.callbacks(data) if case.callbacks else ())]
    # The first lot traces and compiles.
    model.fit(lots, shuffle=False, verbose=0, callbacks=callbacks)
    accuracy = runs.accuracy_function(model)
    some = data.x_test[:EVALUATED], data.y_test[:EVALUATED]
    accuracy(*some)
    before = time.perf_counter()
    accuracy(*some)
    evaluation = time.perf_counter() - before
    return {
        "lot_s": float(np.median(np.diff(ends))),
        "image_s": evaluation / len(some[0]),
    }
