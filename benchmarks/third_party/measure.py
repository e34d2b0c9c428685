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

# Of the largest entry of a weight's update: float32, in another order.
TOLERANCE = 1e-4
# Those of the loop and those of the step, of which either may be the lucky one.
_ROUNDINGS = 4.0


def measure(case: Case, seconds: float = 1800.0) -> dict[str, Any]:
    """What the table says of one model."""
    plain = _apart(seconds, _measure_plain, case)
    if "failure" in plain:
        return {"verdict": "plain Keras fails", "message": plain["failure"]}
    private = _apart(seconds, _measure_private, case, plain)
    if "failure" in private:
        return {"verdict": "refused", "message": private["failure"]}
    row = {
        "verdict": "trains",
        "way": private["way"],
        "error": private["error"],
        "ratio": private["ratio"],
        "first_step": [private["first_step"], plain["first_step"]],
        "memory": [private["memory"], plain["memory"]],
    }
    if row["error"] > TOLERANCE:
        row["double"] = _apart(seconds, check_double, case, plain)
    return row | measure_xla(case, plain, seconds)


def measure_xla(
    case: Case, truth: dict[str, Any] | None = None, seconds: float = 1800.0
) -> dict[str, Any]:
    """Whether XLA compiles a private step, and how right it is.

    Args:
        case: The model.
        truth: From the loop over examples, if it is known already.
        seconds: How long to wait for each part.
    """
    if truth is None:
        truth = _apart(seconds, _measure_plain, case)
    compiled = _apart(seconds, _measure_compiled, case, truth)
    row = {"xla": compiled.get("xla", False), "xla_error": compiled.get("error")}
    if "failure" in compiled:
        row["xla_message"] = compiled["failure"]
    if row["xla"] and row["xla_error"] > TOLERANCE:
        row["xla_double"] = _apart(seconds, check_double, case, truth, True)
    return row


def check(case: Case) -> tuple[float, str]:
    """In this process: the error of the first update, and by which way."""
    truth = truth_of(case)
    error, way = _error_and_way(_build(case), truth)
    if error > TOLERANCE:
        double = check_double(case, truth)
        if is_rounding(error, double):
            error = double["error"]
    return error, way


def is_rounding(error: float, double: dict[str, Any]) -> bool:
    """Whether an error in float32 says nothing but that the model is ill-conditioned.

    The same step in float64 must be right, and plain Keras' own gradients in float32
    must be as far from those in float64: rounding of both is in the error.
    """
    if "failure" in double or double["error"] > TOLERANCE:
        return False
    return error <= _ROUNDINGS * double["rounding"]


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
    return {"first_step": first, "memory": memory, **truth_of(case)}


def truth_of(case: Case) -> dict[str, Any]:
    """What the first update should be: see `_truth`."""
    return _truth(_build(case))


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
    return {"clip": clip, "mean": mean}


def check_double(
    case: Case, truth: dict[str, Any], jit_compile: bool = False
) -> dict[str, float]:
    """In float64: the error of the first update, and that of the loop in float32.

    All start from the same weights, which float64 represents exactly.
    """
    import keras

    weights = _build(case).model.get_weights()
    former = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    # The first layer of a process settles the policy, whatever `floatx` says later.
    keras.config.set_dtype_policy("float64")
    try:
        in_double = _build(case)
        in_double.model.set_weights(weights)
        double = _truth(in_double)
        training = _build(case)
        training.model.set_weights(weights)
        error, _ = _error_and_way(training, double, jit_compile)
    finally:
        keras.config.set_floatx(former[0])
        keras.config.set_dtype_policy(former[1])
    return {"error": error, "rounding": _distance(truth["mean"], double["mean"])}


def _error_and_way(
    training: Training, truth: dict[str, Any], jit_compile: bool = False
) -> tuple[float, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = _step(training, truth["clip"], jit_compile)
        return _error_of_first_step(training, truth, step), _way(caught)


def _error_of_first_step(
    training: Training, truth: dict[str, Any], step: Callable[[], None]
) -> float:
    """How far the first update is from what the loop over examples says."""
    weights = training.model.trainable_variables
    before = [weight.numpy().astype(float) for weight in weights]
    step()
    changes = [
        (former - weight.numpy().astype(float)) / _LEARNING_RATE
        for weight, former in zip(weights, before, strict=True)
    ]
    return _distance(changes, truth["mean"])


def _distance(updates: list[np.ndarray], truth: list[np.ndarray]) -> float:
    """The largest difference in any variable.

    Over the largest entry that the variable's update should have; for updates that
    should be tiny, over a thousandth of the largest of all.
    """
    largest = max(np.abs(mean).max() for mean in truth)
    errors = [
        np.abs(update - mean).max() / max(np.abs(mean).max(), 1e-3 * largest)
        for update, mean in zip(updates, truth, strict=True)
    ]
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


def _measure_compiled(case: Case, truth: dict[str, Any]) -> dict[str, Any]:
    """Whether XLA compiles the step and it is right; `None` if plain fails too."""
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
