"""Peak memory of training, private over plain, each in a process of its own.

python -m benchmarks.memory --workloads W1,W2 --batch-sizes 256,4096
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.workloads import WORKLOADS, make_step


def peak(workload: str, mechanism: str, batch_size: int, steps: int = 3) -> float:
    """Peak resident megabytes of a fresh process that takes a few steps."""
    output = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.memory",
            "--worker",
            json.dumps([workload, mechanism, batch_size, steps]),
        ],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return float(output.split()[-1])


def _worker(workload: str, mechanism: str, batch_size: int, steps: int) -> None:
    step = make_step(WORKLOADS[workload], mechanism, batch_size=batch_size)
    for _ in range(steps):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="W1,W2")
    parser.add_argument("--mechanisms", default="dpsgd")
    parser.add_argument("--batch-sizes", default="256,4096")
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _worker(*json.loads(arguments.worker))
        return
    results = []
    print(f"{'':4} {'batch':>6} {'mechanism':12} {'MB':>7} {'ratio':>6}")
    for workload in arguments.workloads.split(","):
        for batch_size in map(int, arguments.batch_sizes.split(",")):
            plain = peak(workload, "plain", batch_size)
            for mechanism in ["plain", *arguments.mechanisms.split(",")]:
                used = (
                    plain
                    if mechanism == "plain"
                    else peak(workload, mechanism, batch_size)
                )
                results.append([workload, batch_size, mechanism, used, used / plain])
                print(
                    f"{workload:4} {batch_size:6} {mechanism:12} {used:7.0f} "
                    f"{used / plain:6.2f}",
                    flush=True,
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
