"""Runs every script of this folder, one after the other: `make reproduce`.

    python -m benchmarks.papers.run_all [--full] [--plan] [--measure]
        [--finished-only] [--jobs N] [--data-dir DIR] [--output-dir DIR]
        [--cache-dir DIR] [--only NAME ...]

Fast mode takes about ten minutes on two cores, offline. `--full` runs what the papers'
figures need on two cores, the cheapest first: learning rates, then trainings. It can be
killed at any moment and given again: finished trainings are rows in `OUTPUT/runs/*.csv`
(commit them as they come), the one at hand goes on from `--cache-dir`. `--jobs 2` trains
two at a time with one thread each, which is faster than one with two threads.
`--full --plan` trains nothing and lists what is missing, with the time it takes on two
idle cores, if `--full --measure` has timed it; `--finished-only` draws what is there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

SCRIPTS = (
    "abadi_figure2",
    "abadi_figure3",
    "abadi_figure6",
    "places_of_noise",
    "nasr_figure1",
    "nasr_figures",
    "nasr_figure6",
    "amian_figures",
    "xiang_figures1_2",
    "xiang_table2",
    "xiang_figures",
    "xiang_ill_conditioned",
    "errata_directional",
    "errata",
)
# At the papers' size, as far as two cores can: script and arguments, cheapest first.
# ResNet-18 and AlexNet (xiang_figures 3b to 6b and 3c to 5d) need a GPU: README.md.
FULL = (
    ("abadi_figure3", "--tune"),
    ("abadi_figure3",),
    ("abadi_figure6", "--seeds", "1", "--tune"),
    ("abadi_figure6", "--seeds", "1"),
    ("amian_figures", "--only", "3", "5", "--tune"),
    ("amian_figures", "--only", "3", "5"),
    ("xiang_figures", "--only", "3a", "--tune"),
    ("xiang_figures", "--only", "3a"),
    ("nasr_figures", "--only", "mnist", "--tune"),
    ("nasr_figures", "--only", "mnist", "--seeds", "2"),
    *(
        ("xiang_figures", "--only", part, "--epochs", "20", "--seeds", "1")
        for part in ("4a", "5a", "6a")
    ),
    ("nasr_figures", "--only", "cifar10", "--tune"),
    ("nasr_figures", "--only", "cifar10", "--seeds", "1"),
    ("amian_figures", "--only", "2", "4", "--tune"),
    ("amian_figures", "--only", "2", "4"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the papers' sizes: a day")
    parser.add_argument("--plan", action="store_true", help="with --full: what is left")
    parser.add_argument(
        "--measure", action="store_true", help="with --full: --plan, and time each step"
    )
    parser.add_argument(
        "--finished-only", action="store_true", help="with --full: draw what is there"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="with --full: trainings at a time, 1.5 GB each",
    )
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    parser.add_argument("--output-dir", type=Path)
    parser.add_argument("--cache-dir", type=Path, default=Path("runs/cache"))
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    arguments = parser.parse_args()
    # Finished trainings are where they can be committed.
    output = arguments.output_dir or Path(
        "docs/results" if arguments.full else "runs/papers"
    )
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    if arguments.data_dir:
        environment["KERAS_DP_DATA"] = arguments.data_dir
    commands = [
        (name, *rest, "--output-dir", str(output), *_mode(arguments))
        for name, *rest in (FULL if arguments.full else zip(SCRIPTS, strict=True))
        if name in arguments.only
    ]
    trains = arguments.full and not (
        arguments.plan or arguments.measure or arguments.finished_only
    )
    jobs = arguments.jobs if trains else 1
    if jobs > 1:
        threads = str(max(1, (os.cpu_count() or 1) // jobs))
        for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
            environment.setdefault(name, threads)
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        # Each takes trainings that no other one has (`runs.py`).
        run = _import if arguments.full and arguments.plan else _start
        started = [pool.submit(_run, commands, environment, run) for _ in range(jobs)]
        failed = sorted({what for job in started for what in job.result()})
    minutes = (time.monotonic() - begun) / 60
    print(f"Results in {output}, {minutes:.1f} minutes")
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


def _start(command: Sequence[str], environment: dict[str, str]) -> bool:
    """Runs a script in a process of its own; whether it succeeded."""
    name, *rest = command
    words = [sys.executable, "-m", f"benchmarks.papers.{name}", *rest]
    return not subprocess.run(words, env=environment, check=False).returncode


def _import(command: Sequence[str], environment: dict[str, str]) -> bool:
    """Runs a script in this process, which takes seconds less; whether it succeeded."""
    name, *rest = command
    os.environ.update(environment)
    sys.argv = [name, *rest]
    try:
        importlib.import_module(f"benchmarks.papers.{name}").main()
    except Exception:
        traceback.print_exc()
        return False
    return True


def _run(
    commands: Sequence[tuple[str, ...]],
    environment: dict[str, str],
    run: Callable[[Sequence[str], dict[str, str]], bool],
) -> Sequence[str]:
    """Runs all commands one after the other; returns those that failed."""
    failed = []
    for number, (name, *rest) in enumerate(commands):
        started, what = time.monotonic(), " ".join((name, *rest))
        print(f"== {what} ({number + 1} of {len(commands)})", flush=True)
        if not run((name, *rest), environment):
            failed.append(what)
        print(f"== {name}: {time.monotonic() - started:.0f} s\n", flush=True)
    return failed


def _mode(arguments: argparse.Namespace) -> list[str]:
    """The arguments that every script gets."""
    if not arguments.full:
        return ["--fast"]
    return [
        *("--cache-dir", str(arguments.cache_dir)),
        *(["--plan"] if arguments.plan else []),
        *(["--measure"] if arguments.measure else []),
        *(["--finished-only"] if arguments.finished_only else []),
    ]


if __name__ == "__main__":
    sys.exit(main())
