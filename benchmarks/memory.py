"""Peak memory of training, private over plain, each in a process of its own.

    python -m benchmarks.memory --workloads W1,W3,vgg16 --batch-sizes 64,4096
    python -m benchmarks.memory --workloads all --json docs/results/memory.json
    python -m benchmarks.memory --limits W3:512:500MB

The second makes the table of docs/performance.md. A second call with the same file
measures only what is not in it yet: a long table can be made in pieces. The third shows
what steps take beside what the process held before, with that `memory_limit`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.networks import ALL_MODELS
from benchmarks.workloads import make_step


def peak(
    workload: str,
    mechanism: str,
    batch_size: int,
    static: bool = False,
    chunk_bytes: int | None = None,
    steps: int = 5,
) -> float:
    """Peak resident megabytes of a fresh process that takes a few steps.

    Args:
        workload: Its name.
        mechanism: "plain" or one of `MECHANISMS`.
        batch_size: Examples in a batch.
        static: Whether TensorFlow knows the size of the batch.
        chunk_bytes: Of the private optimizer.
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
    arguments = {} if mechanism == "plain" else {"chunk_bytes": chunk_bytes}
    step = make_step(
        ALL_MODELS[workload],
        mechanism,
        batch_size=batch_size,
        static_batch=static,
        **arguments,
    )
    for _ in range(steps):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def taken_within(workload: str, batch_size: int, limit: str, steps: int = 3) -> float:
    """Megabytes that DPSGD's steps take beside what this process holds already."""
    step = make_step(
        ALL_MODELS[workload], "dpsgd", batch_size=batch_size, memory_limit=limit
    )
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize()
    for _ in range(steps):
        step()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak - before) / 10**6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--workloads", default="W1,W2", help=f'names, or "all": {", ".join(ALL_MODELS)}'
    )
    parser.add_argument("--mechanisms", default="dpsgd")
    parser.add_argument("--batch-sizes", default="64")
    parser.add_argument("--batches", default="dynamic", help="dynamic,static")
    parser.add_argument("--chunk-bytes", type=int)
    parser.add_argument("--json", metavar="PATH", type=Path)
    parser.add_argument(
        "--limits", help="name:batch size:limit of one case, in this process"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.limits:
        workload, size, limit = arguments.limits.split(":")
        print(f"{taken_within(workload, int(size), limit):.0f} MB of {limit}")
        return
    if arguments.worker:
        _worker(*json.loads(arguments.worker))
        return
    names = arguments.workloads
    results = Results(arguments.json)
    print(f"{'':16} {'batch':>14} {'mechanism':12} {'MB':>7} {'ratio':>6}")
    for workload, size, kind in itertools.product(
        ALL_MODELS if names == "all" else names.split(","),
        map(int, arguments.batch_sizes.split(",")),
        arguments.batches.split(","),
    ):
        for mechanism in ["plain", *arguments.mechanisms.split(",")]:
            used, ratio = results.get(
                (workload, size, kind, mechanism), arguments.chunk_bytes
            )
            print(
                f"{workload:16} {size:6} {kind:7} {mechanism:12} {used:7.0f} {ratio:6.2f}",
                flush=True,
            )


class Results:
    """Rows `[workload, batch size, kind, mechanism, MB, ratio]`, kept in a file.

    Args:
        path: The file, or `None`. What it has is not measured again.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._rows = []
        if path is not None and path.exists():
            self._rows = json.loads(path.read_text())

    def get(self, case: tuple, chunk_bytes: int | None = None) -> tuple[float, float]:
        """Megabytes and their ratio to plain training, which is measured before."""
        found = self._find(case)
        if found is None:
            *setting, mechanism = case
            workload, size, kind = setting
            used = peak(workload, mechanism, size, kind == "static", chunk_bytes)
            plain = self._find((*setting, "plain")) or (used, 1.0)
            found = used, used / plain[0]
            self._rows.append([*case, *found])
            if self._path is not None:
                self._path.write_text(json.dumps(self._rows, indent=1) + "\n")
        return found

    def _find(self, case: tuple) -> tuple[float, float] | None:
        for *known, used, ratio in self._rows:
            if tuple(known) == case:
                return used, ratio
        return None


if __name__ == "__main__":
    main()
