"""The processes of `tf.distribute.MultiWorkerMirroredStrategy`, and what they tell each other.

TensorFlow does not say in public whether this process is one of several. Its coordination
service, by which workers find out that another one has died, keeps short texts by name.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat.versions import incompatible, require

# Jobs whose tasks train; evaluators and parameter servers do not.
_TRAINING_JOBS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process among those that train together: its number, and how many there are."""

    index: int
    count: int


def this_worker() -> Worker:
    """Which of the training processes this is: the first of one, unless there are more.

    Relies on `context.context()._collective_ops_server_def`, set by
    `MultiWorkerMirroredStrategy` when it starts its server (2.16).
    """
    server = require(_context(), "_collective_ops_server_def")
    if server is None:
        return Worker(0, 1)
    tasks = [
        (job.name, number)
        for name in _TRAINING_JOBS
        for job in server.cluster.job
        if job.name == name
        for number in sorted(job.tasks)
    ]
    if (server.job_name, server.task_index) not in tasks:
        return Worker(0, 1)  # An evaluator, which trains by itself if at all.
    return Worker(tasks.index((server.job_name, server.task_index)), len(tasks))


def exchange(
    worker: Worker, name: str, told: dict[str, Any], seconds: float
) -> list[dict[str, Any] | None]:
    """What all workers tell under a name, in their order; this one tells `told`.

    Args:
        worker: This one.
        name: Used once, by all workers.
        told: Must be fit for JSON.
        seconds: How long to wait for another worker; `None` is in its place then.
    """
    tell(f"{name}/{worker.index}", json.dumps(told))
    heard = (hear(f"{name}/{index}", seconds) for index in range(worker.count))
    return [None if text is None else json.loads(text) for text in heard]


def tell(name: str, text: str) -> None:
    """Writes a text that all workers can read; a name is used once.

    Relies on `Context.set_config_key_value` (2.16).
    """
    require(_context(), "set_config_key_value")(name, text)


def hear(name: str, seconds: float) -> str | None:
    """The text of that name, once some worker has written it; `None` after `seconds`.

    Relies on `Context.get_config_key_value` (2.16).
    """
    try:
        return require(_context(), "get_config_key_value")(name, int(1000 * seconds))
    except tf.errors.DeadlineExceededError:
        return None


def _context() -> Any:
    try:
        from tensorflow.python.eager import context
    except ImportError as error:
        raise incompatible("`tensorflow.python.eager.context` is missing") from error
    return require(context, "context")()
