"""Peak memory of training, private over plain, each in a process of its own.

python -m benchmarks.memory --workloads W1,W3,W6 --batch-sizes 64,4096
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.workloads import WORKLOADS, make_step


def peak(
    workload: str,
    mechanism: str,
    batch_size: int,
    static: bool = False,
    chunk_bytes: int | None = None,
    steps: int = 3,
) -> float:
    """Peak resident megabytes of a fresh process that takes a few steps.

    Args:
        workload: Its name.
        mechanism: "plain" or one of `MECHANISMS`.
        batch_size: Examples in a batch.
        static: Whether TensorFlow knows the size of the batch.
        chunk_bytes: See `keras_dp_ext.gradients.set_chunk_bytes`.
        steps: How many.
    """
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--worker",
            json.dumps([workload, mechanism, batch_size, static, chunk_bytes, steps]),
        ],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return float(output.split()[-1])


def _worker(
    workload: str,
    mechanism: str,
    batch_size: int,
    static: bool,
    chunk_bytes: int | None,
    steps: int,
) -> None:
    if mechanism != "plain":
        from keras_dp_ext.gradients import set_chunk_bytes

        set_chunk_bytes(chunk_bytes)
    step = make_step(
        WORKLOADS[workload], mechanism, batch_size=batch_size, static_batch=static
    )
    for _ in range(steps):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="W1,W2")
    parser.add_argument("--mechanisms", default="dpsgd")
    parser.add_argument("--batch-sizes", default="64,256,4096")
    parser.add_argument("--batches", default="dynamic,static")
    parser.add_argument("--chunk-bytes", type=int)
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _worker(*json.loads(arguments.worker))
        return
    results = []
    print(f"{'':4} {'batch':>14} {'mechanism':12} {'MB':>7} {'ratio':>6}")
    for workload, size, kind in itertools.product(
        arguments.workloads.split(","),
        map(int, arguments.batch_sizes.split(",")),
        arguments.batches.split(","),
    ):
        plain = None
        for mechanism in ["plain", *arguments.mechanisms.split(",")]:
            used = peak(
                workload, mechanism, size, kind == "static", arguments.chunk_bytes
            )
            plain = plain or used
            results.append([workload, size, kind, mechanism, used, used / plain])
            print(
                f"{workload:4} {size:6} {kind:7} {mechanism:12} {used:7.0f} "
                f"{used / plain:6.2f}",
                flush=True,
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
