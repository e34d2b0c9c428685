"""Speed of private training on 1 and 2 workers, and on 1 and 2 replicas.

    python -m benchmarks.distributed --workloads W3,W5 --json distributed.json

Every worker is a process on 127.0.0.1 that is pinned to one core, so that two
workers have twice the computing power of one, as two machines would. Replicas are two
virtual devices of one process on two cores, against one device on one core. The global
batch is the same for all: what is measured is strong scaling.

A second call with the same file adds its rounds to those that are in it: a long table can
be made in pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.networks import ALL_MODELS
from benchmarks.workloads import timed

OPTIMIZERS = ("plain SGD", "DPSGD", "EncodedSGD")
KINDS = ("workers", "replicas")
COUNTS = (1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="W2", help=", ".join(ALL_MODELS))
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--batch-size", type=int, help="by default the workload's")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", metavar="PATH", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print("STEP", _time_steps(*json.loads(arguments.worker)), flush=True)
        return
    cases = [
        (workload, kind, name)
        for workload in arguments.workloads.split(",")
        for kind in arguments.kinds.split(",")
        for name in arguments.optimizers.split(",")
    ]
    times: dict[str, list[list[float]]] = {}
    if arguments.json and arguments.json.exists():
        times = json.loads(arguments.json.read_text())
    # Interleaved, so that other load on the machine meets all of them alike.
    for _ in range(arguments.rounds):
        for case in cases:
            for count in COUNTS:
                times.setdefault(_key(case, count), []).append(
                    _launch(case, count, arguments.batch_size, arguments.steps)
                )
            if arguments.json:
                arguments.json.write_text(json.dumps(times, indent=1) + "\n")
    print_table(cases, times)


def _key(case: tuple, count: int) -> str:
    return ", ".join([*case, str(count)])


def print_table(cases: list[tuple], times: dict[str, list[list[float]]]) -> None:
    """Medians over the rounds; speed-ups are those of one round each."""
    print("| | optimizer | 1, ms | 2, ms | speed-up | of processor time |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        # [count, round, (clock, processor)]
        turns = 1e3 * np.array([times[_key(case, count)] for count in COUNTS])
        clock = np.median(turns[:, :, 0], axis=1)
        speed_up = np.median(turns[0] / turns[1], axis=0)
        workload, kind, name = case
        print(
            f"| {workload}, {kind} | {name} | {clock[0]:.1f} | {clock[1]:.1f} | "
            f"{speed_up[0]:.2f} | {speed_up[1]:.2f} |"
        )


def _launch(case: tuple, count: int, batch_size: int | None, steps: int) -> list[float]:
    """Medians of the slowest worker: on the clock, and of its processor."""
    workload, kind, name = case
    processes = count if kind == "workers" else 1
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(processes)]
    started = []
    for index in range(processes):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        cores = set(range(count))
        if kind == "workers":
            cores = {index % (os.cpu_count() or 1)}
            environment["TF_CONFIG"] = json.dumps(
                {
                    "cluster": {"worker": addresses},
                    "task": {"type": "worker", "index": index},
                }
            )
        worker = json.dumps([workload, kind, name, count, batch_size, steps])
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.distributed", "--worker", worker],
                env=environment,
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                preexec_fn=lambda cores=cores: os.sched_setaffinity(0, cores),
            )
        )
    outputs = [process.communicate()[0] for process in started]
    medians = [json.loads(output.split("STEP")[1]) for output in outputs]
    return [max(values) for values in zip(*medians, strict=True)]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _strategy(kind: str, count: int):
    import tensorflow as tf

    if kind == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(count)])


def _time_steps(
    workload: str, kind: str, name: str, count: int, batch_size: int | None, steps: int
) -> list[float]:
    import tensorflow as tf

    strategy = _strategy(kind, count)

    import keras

    import keras_dp_ext as dp

    model_of = ALL_MODELS[workload]
    batch_size = batch_size or model_of.batch_size
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = model_of.build(keras)
        if name == "plain SGD":
            optimizer = keras.optimizers.SGD(0.1)
        else:
            optimizer = getattr(dp.optimizers, name)(
                learning_rate=0.1, expected_batch_size=batch_size
            )
        optimizer.build(model.trainable_variables)

    def step(x, y):
        if name == "plain SGD":
            with tf.GradientTape() as tape:
                losses = _losses(y, model(x))
                loss = tf.reduce_sum(losses) / batch_size
            variables = model.trainable_variables
            optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
        else:
            optimizer.minimize(_losses(y, model(x)), model.trainable_variables)

    def _losses(y, logits):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)

    @tf.function
    def global_step(batch):
        strategy.run(step, args=batch)

    shares = batch_size // strategy.num_replicas_in_sync
    batch = tuple(map(tf.constant, model_of.batch(shares)))
    for _ in range(3):
        global_step(batch)
    return np.median(timed(lambda: global_step(batch), steps), axis=0).tolist()


if __name__ == "__main__":
    main()
