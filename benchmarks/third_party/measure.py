"""Measures one model: every part in a process of its own, forked before TensorFlow starts.

A fork has imported everything and run nothing, so its peak of memory and its first step
are those of one training.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.third_party.case import Case, Training, enliven

# Large, so that a step's change of a weight is read off without loss: weights are small
# beside it.
_LEARNING_RATE = 1024.0
_ROUNDS = 5


def measure(case: Case, seconds: float = 900.0) -> dict[str, Any]:
    """What the table says of one model, but for XLA."""
    plain = _apart(seconds, _measure_plain, case)
    if "failure" in plain:
        return {"verdict": "plain Keras fails", "message": plain["failure"]}
    private = _apart(seconds, _measure_private, case, plain)
    if "failure" in private:
        return {"verdict": "refused", "message": private["failure"]}
    return {
        "verdict": "trains",
        "way": private["way"],
        "error": private["error"],
        "ratio": private["ratio"],
        "first_step": [private["first_step"], plain["first_step"]],
        "memory": [private["memory"], plain["memory"]],
    }


def measure_xla(case: Case, seconds: float = 900.0) -> dict[str, Any]:
    """Whether XLA compiles a private step, and how right it is."""
    found = _apart(seconds, _measure_compiled, case)
    row = {"xla": found.get("xla", False), "xla_error": found.get("error")}
    return row | ({"message": found["failure"]} if "failure" in found else {})


def check(case: Case) -> tuple[float, str]:
    """In this process: the error of the first update, and by which way."""
    truth = _truth(_build(case))
    training = _build(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = _error_of_first_step(training, truth, _step(training, truth["clip"]))
    return error, _way(caught)


def _apart(seconds: float, function: Callable, *arguments) -> dict[str, Any]:
    """The result of a function in a forked process, or the failure."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            result = function(*arguments)
        except BaseException as error:
            traceback.print_exc()
            result = {"failure": f"{type(error).__name__}: {error}"}
        sender.send(result)

    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return {"failure": f"No answer after {seconds:.0f} s."}
        return receiver.recv()
    except EOFError:
        return {"failure": "The process died."}
    finally:
        process.kill()
        process.join()


def _build(case: Case) -> Training:
    import keras

    keras.utils.set_random_seed(0)
    training = case.build()
    enliven(training.model)
    return training


def _peak() -> float:
    """Of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _step(
    training: Training, clip: float | None, jit_compile: bool = False
) -> Callable[[], None]:
    """One step as `fit` runs it; private, without noise, if there is a clip."""
    import keras
    import tensorflow as tf

    from benchmarks.workloads import repeated

    if clip is None:
        optimizer = keras.optimizers.SGD(_LEARNING_RATE)
    else:
        from keras_dp_ext.optimizers import DPSGD

        optimizer = DPSGD(
            learning_rate=_LEARNING_RATE,
            l2_norm_clip=clip,
            noise_multiplier=0.0,
            expected_batch_size=_rows(training),
        )
    model = training.model
    model.compile(optimizer, training.loss, jit_compile=jit_compile)
    if clip is not None:
        optimizer.bind(model)  # `fit` would tell it.
    iterator = iter(repeated((training.x, training.y), static=jit_compile))
    model.make_train_function()

    def step() -> None:
        logs = model.train_function(iterator)
        tf.nest.map_structure(lambda value: value.numpy(), logs)

    return step


def _rows(training: Training) -> int:
    import tensorflow as tf

    return len(tf.nest.flatten(training.y)[0])


def _processor_seconds(step: Callable[[], None], steps: int = 1) -> float:
    started = time.process_time()
    for _ in range(steps):
        step()
    return time.process_time() - started


def _measure_plain(case: Case) -> dict[str, Any]:
    before = _peak()
    training = _build(case)
    step = _step(training, None)
    first = _processor_seconds(step)
    step()
    memory = _peak() - before
    return {"first_step": first, "memory": memory, **_truth(_build(case))}


def _truth(training: Training) -> dict[str, Any]:
    """The clipped mean gradient, by one tape for each example.

    The clip is the median of the norms: half of the gradients are clipped.
    """
    import tensorflow as tf

    model = training.model
    model.compile("sgd", training.loss)
    variables = [weight.value for weight in model.trainable_variables]

    @tf.function
    def gradient(x, y):
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=outputs, training=True)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        return [tf.convert_to_tensor(one) for one in gradients]

    rows = []
    for i in range(_rows(training)):
        one = tf.nest.map_structure(
            lambda array, i=i: tf.constant(array[i : i + 1]), (training.x, training.y)
        )
        rows.append([np.asarray(value, float) for value in gradient(*one)])
    norms = [np.sqrt(sum(np.sum(v**2) for v in row)) for row in rows]
    clip = float(np.median(norms)) or 1.0
    mean = [np.zeros_like(value) for value in rows[0]]
    for row, norm in zip(rows, norms, strict=True):
        for total, value in zip(mean, row, strict=True):
            total += value * min(1.0, clip / norm) / len(rows)
    return {"clip": clip, "mean": [value.astype(np.float32) for value in mean]}


def _error_of_first_step(
    training: Training, truth: dict[str, Any], step: Callable[[], None]
) -> float:
    """How far the first update is from what the loop over examples says.

    The largest difference in any variable, over the largest entry that the variable's
    update should have; for updates that should be tiny, over a thousandth of the largest
    of all.
    """
    weights = training.model.trainable_variables
    before = [weight.numpy().astype(float) for weight in weights]
    step()
    largest = max(np.abs(mean).max() for mean in truth["mean"])
    errors = []
    for weight, former, mean in zip(weights, before, truth["mean"], strict=True):
        change = (former - weight.numpy().astype(float)) / _LEARNING_RATE
        scale = max(np.abs(mean).max(), 1e-3 * largest)
        errors.append(np.abs(change - mean).max() / scale)
    return float(np.max(errors))


def _way(caught) -> str:
    messages = [str(warning.message) for warning in caught]
    found = any("No fast per-example" in message for message in messages)
    return "fallback" if found else "rule"


def _measure_private(case: Case, truth: dict[str, Any]) -> dict[str, Any]:
    before = _peak()
    training = _build(case)
    seconds: list[float] = []
    step = _step(training, truth["clip"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = _error_of_first_step(
            training, truth, lambda: seconds.append(_processor_seconds(step))
        )
    step()
    memory = _peak() - before
    plain = _build(case)
    steps = {"private": step, "plain": _step(plain, None)}
    training.model.set_weights(plain.model.get_weights())
    for model in (training.model, plain.model):
        model.optimizer.learning_rate.assign(0.0)
    return {
        "way": _way(caught),
        "error": error,
        "first_step": seconds[0],
        "memory": memory,
        "ratio": _ratio(steps),
    }


def _ratio(steps: dict[str, Callable[[], None]]) -> float:
    """Processor time, private over plain: the least of interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    once = max(1e-4, *(_processor_seconds(step, 2) / 2 for step in steps.values()))
    repeats = int(np.clip(0.05 / once, 1, 20))
    for _ in range(_ROUNDS):
        for name, step in steps.items():
            seconds[name].append(_processor_seconds(step, repeats))
    return min(seconds["private"]) / min(seconds["plain"])


def _measure_compiled(case: Case) -> dict[str, Any]:
    """Whether XLA compiles the step and it is right; `None` if plain fails too."""
    truth = _truth(_build(case))
    training = _build(case)
    try:
        step = _step(training, truth["clip"], jit_compile=True)
        return {"xla": True, "error": _error_of_first_step(training, truth, step)}
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    try:
        _step(_build(case), None, jit_compile=True)()
    except Exception:
        return {"xla": None}
    return {"xla": False, "failure": failure}
