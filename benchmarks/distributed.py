"""Speed of private training on 1 and 2 workers, and on 1 and 2 replicas.

    python benchmarks/distributed.py

Every worker is a process on 127.0.0.1 that is pinned to one core, so that two
workers have twice the computing power of one, as two machines would. The global
batch is the same for all: what is measured is strong scaling.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

BATCH, FEATURES = 512, 784


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print("STEP", _time_steps(arguments.steps))
        return
    names = ("plain SGD", "DPSGD", "EncodedSGD")
    times: dict[tuple[str, int], list[float]] = {}
    # Interleaved, so that other load on the machine meets all of them alike.
    for _ in range(arguments.rounds):
        for name in names:
            for workers in (1, 2):
                seconds = _launch(name, workers, arguments.steps)
                times.setdefault((name, workers), []).append(seconds)
    print("| optimizer | 1 worker, ms | 2 workers, ms | speed-up |\n|---|---|---|---|")
    for name in names:
        one, two = (statistics.median(times[name, n]) for n in (1, 2))
        print(f"| {name} | {1e3 * one:.1f} | {1e3 * two:.1f} | {one / two:.2f} |")


def _launch(name: str, workers: int, steps: int) -> float:
    """Median step time of the slowest worker."""
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    processes = []
    for index in range(workers):
        cluster = {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        core = index % (os.cpu_count() or 1)
        processes.append(
            subprocess.Popen(
                [sys.executable, __file__, "--worker", "--steps", str(steps)],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps(cluster),
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    "OPTIMIZER": name,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
            )
        )
    outputs = [process.communicate()[0] for process in processes]
    return max(float(output.split("STEP")[1]) for output in outputs)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _time_steps(steps: int) -> float:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    import keras

    import keras_dp_ext as dp

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([FEATURES]),
                keras.layers.Dense(256, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        name = os.environ["OPTIMIZER"]
        if name == "plain SGD":
            optimizer = keras.optimizers.SGD(0.1)
        else:
            optimizer = getattr(dp.optimizers, name)(
                learning_rate=0.1, expected_batch_size=BATCH
            )
        optimizer.build(model.trainable_variables)

    def step(x, y):
        if name == "plain SGD":
            with tf.GradientTape() as tape:
                losses = _losses(y, model(x))
                loss = tf.reduce_sum(losses) / BATCH
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

    local = BATCH // strategy.num_replicas_in_sync
    batch = (
        tf.random.normal([local, FEATURES]),
        tf.random.uniform([local], 0, 10, tf.int32),
    )
    for _ in range(3):
        global_step(batch)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        global_step(batch)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
