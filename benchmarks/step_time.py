"""How long a private step takes, over the plain Keras step of the same model.

All variants are measured in interleaved rounds, so that whatever else the machine
does hits all of them alike. TensorFlow Privacy (which needs Keras 2), Opacus and
JAX-Privacy run in processes of their own, in the same rounds.

    python -m benchmarks.step_time --workloads W1,W2 --mechanisms dpsgd,tanh

`benchmarks.compare_runs` compares the files of two runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.networks import ALL_MODELS
from benchmarks.workloads import MECHANISMS, WORKLOADS, make_step, timed

# TensorFlow Privacy 0.9: DPKerasSGDOptimizer and DPSequential.
TF_PRIVACY = ("tfp-optimizer", "tfp-sequential")
# Opacus: ghost clipping, expanded weights, hooks; and PyTorch that is not private.
OPACUS = ("opacus-ghost", "opacus-expanded", "opacus-hooks", "torch-plain")
# JAX-Privacy: all examples of a batch at once, and in four parts; and JAX, not private.
JAX_PRIVACY = ("jax-privacy", "jax-microbatched", "jax-plain")
# The workloads whose models these two have.
_PEERS_KNOW = ("W1", "W2", "W3", "W6")


class Local:
    """A variant that runs in this process.

    Args:
        step: Makes one or several training steps.
        count: How many it makes.
    """

    def __init__(self, step: Callable[[], None], count: int = 1):
        start = time.perf_counter()
        step()
        self.first_step = time.perf_counter() - start
        self._step = step
        self._count = count

    def time(self, steps: int) -> list[tuple[float, float]]:
        """Seconds of each of a few steps: on the clock, and of all processors."""
        calls = timed(self._step, -(-steps // self._count))
        return [(clock / self._count, cpu / self._count) for clock, cpu in calls]

    def close(self) -> None:
        pass


class Remote:
    """A variant of another library, in a process of its own.

    Args:
        python: The interpreter that has the library.
        name: One of `TF_PRIVACY`, `OPACUS` or `JAX_PRIVACY`.
        workload: Its name.
    """

    def __init__(self, python: str, name: str, workload: str):
        script = _script(name)
        self._process = subprocess.Popen(
            [python, *script, name, workload],
            env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.first_step = self._read()[0][0]

    def _read(self) -> list[tuple[float, float]]:
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return json.loads(line.removeprefix("seconds "))
        raise RuntimeError(f"This failed: {' '.join(self._process.args)}")

    def time(self, steps: int) -> list[tuple[float, float]]:
        print(steps, file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def _script(name: str) -> list[str]:
    """What Python runs for a variant of another library."""
    if name in TF_PRIVACY:
        return ["-m", "benchmarks.tf_privacy_step"]
    if name in JAX_PRIVACY:
        return ["-m", "benchmarks.jax_privacy_step"]
    return ["benchmarks/opacus_step.py"]


def measure(variants: dict[str, Local | Remote], rounds: int, seconds: float) -> dict:
    """Interleaved rounds over all variants.

    Args:
        variants: By name; one is called "plain".
        rounds: How often each variant has its turn.
        seconds: About how long a turn takes, as a number of steps of at least 1.

    Returns:
        For each variant: median step in ms and its quartiles, the ratio to the
        plain step of the same round (median and quartiles), the ratio of the
        medians of processor time (which other programs disturb less), and the
        seconds of the first step.
    """
    steps = {}
    for name, variant in variants.items():
        variant.time(1)
        steps[name] = max(1, min(20, round(seconds / variant.time(1)[0][0])))
    times = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            times[name].append(variant.time(steps[name]))
    # [rounds, (clock, processors)]
    medians = {
        name: np.array([np.median(turn, axis=0) for turn in turns])
        for name, turns in times.items()
    }
    plain = medians["plain"]
    result = {}
    for name, by_round in medians.items():
        cpu = np.median(by_round[:, 1])
        result[name] = {
            "ms": _quartiles(1000 * by_round[:, 0]),
            "ratio": _quartiles(by_round[:, 0] / plain[:, 0]),
            "cpu_ms": float(1000 * cpu),
            "cpu_ratio": float(cpu / np.median(plain[:, 1])),
            "first_step_s": variants[name].first_step,
        }
    return result


def _quartiles(values) -> list[float]:
    """Median, lower and upper quartile."""
    return [float(value) for value in np.percentile(values, [50, 25, 75])]


def run(
    workload: str,
    mechanisms: list[str],
    rounds: int,
    seconds: float,
    jit_compile: bool | str,
    pythons: dict[str, str] | None = None,
    batch_size: int | None = None,
    steps_per_execution: int = 1,
    also_static: bool = False,
) -> dict:
    """The figures of one workload; see `measure`.

    Args:
        workload: Its name.
        mechanisms: Our own and those of other libraries, by name.
        rounds: How often each variant has its turn.
        seconds: About how long a turn takes.
        jit_compile: As Keras' `compile` takes it, for our own variants.
        pythons: The interpreter of each variant of another library.
        batch_size: Of our own variants.
        steps_per_execution: Of our own variants.
        also_static: Whether to measure ours for a batch of static size, too.
    """
    pythons = pythons or {}

    def local(name: str, static_batch: bool = False) -> Local:
        step = make_step(
            ALL_MODELS[workload],
            name,
            jit_compile,
            batch_size,
            steps_per_execution,
            static_batch=static_batch,
        )
        return Local(step, steps_per_execution)

    variants: dict[str, Local | Remote] = {}
    try:
        for name in ["plain", *mechanisms]:
            if name in pythons:
                variants[name] = Remote(pythons[name], name, workload)
            else:
                variants[name] = local(name)
                if also_static:
                    variants[f"{name}, static"] = local(name, static_batch=True)
        return measure(variants, rounds, seconds)
    finally:
        for variant in variants.values():
            variant.close()


def _has_model(name: str, workload: str) -> bool:
    """Whether a variant can train the model of a workload."""
    if name in (*OPACUS, *JAX_PRIVACY):
        return workload in _PEERS_KNOW
    return name != "tfp-sequential" or ALL_MODELS[workload].sequential


def print_table(results: dict[str, dict]) -> None:
    print(
        f"{'':4} {'variant':16} {'ms':>9} {'ratio':>7} {'quartiles':>15} "
        f"{'CPU ratio':>9} {'first s':>8}"
    )
    for workload, result in results.items():
        for name, row in result.items():
            ratio, low, high = row["ratio"]
            print(
                f"{workload:4} {name:16} {row['ms'][0]:9.1f} {ratio:7.2f} "
                f"{low:7.2f}-{high:<7.2f} {row['cpu_ratio']:9.2f} "
                f"{row['first_step_s']:8.1f}"
            )


def plot(results: dict[str, dict], path: str) -> None:
    """Ratios as bars, with their quartiles."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in next(iter(results.values())) if name != "plain"]
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        present = [workload for workload in results if name in results[workload]]
        ratios = np.array([results[workload][name]["ratio"] for workload in present])
        places = [
            list(results).index(workload) + number * width for workload in present
        ]
        axes.bar(
            places,
            ratios[:, 0],
            width,
            yerr=np.abs(ratios[:, 1:] - ratios[:, :1]).T,
            label=name,
        )
    axes.set_xticks(np.arange(len(results)) + 0.4 - width / 2, list(results))
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylabel("private step / plain Keras step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--workloads",
        default=",".join(WORKLOADS),
        help=f"names, of {', '.join(ALL_MODELS)}",
    )
    parser.add_argument("--mechanisms", default=",".join(MECHANISMS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--batch-size", type=int, help="of our own variants")
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument(
        "--also-static",
        action="store_true",
        help="measure each of our variants also for a batch of static size",
    )
    parser.add_argument("--jit", choices=("auto", "on", "off"), default="auto")
    parser.add_argument(
        "--tf-privacy",
        action="store_true",
        help="measure TensorFlow Privacy, too: " + ", ".join(TF_PRIVACY),
    )
    parser.add_argument(
        "--opacus",
        metavar="PYTHON",
        help="measure Opacus, too, with the interpreter of an environment that has it: "
        + ", ".join(OPACUS),
    )
    parser.add_argument(
        "--jax-privacy",
        metavar="PYTHON",
        help="measure JAX-Privacy, too, with the interpreter of an environment that "
        "has it: " + ", ".join(JAX_PRIVACY),
    )
    parser.add_argument("--json", metavar="PATH", help="where to write all figures")
    parser.add_argument("--figure", metavar="PATH", help="where to draw the ratios")
    arguments = parser.parse_args(argv)
    mechanisms = arguments.mechanisms.split(",")
    if arguments.tf_privacy:
        if importlib.util.find_spec("tensorflow_privacy") is None:
            parser.error("tensorflow_privacy is not installed")
        mechanisms += TF_PRIVACY
    pythons = dict.fromkeys(TF_PRIVACY, sys.executable)
    for names, python in (
        (OPACUS, arguments.opacus),
        (JAX_PRIVACY, arguments.jax_privacy),
    ):
        if python:
            mechanisms += [name for name in names if name not in mechanisms]
        pythons.update(dict.fromkeys(names, python))
    missing = [name for name in mechanisms if name in pythons and not pythons[name]]
    if missing:
        parser.error(f"Which interpreter has the library of {missing[0]}?")
    jit_compile = {"auto": "auto", "on": True, "off": False}[arguments.jit]
    results = {}
    for workload in arguments.workloads.split(","):
        results[workload] = run(
            workload,
            [name for name in mechanisms if _has_model(name, workload)],
            arguments.rounds,
            arguments.seconds,
            jit_compile,
            pythons,
            arguments.batch_size,
            arguments.steps_per_execution,
            arguments.also_static,
        )
        print_table({workload: results[workload]})
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    if arguments.figure:
        plot(results, arguments.figure)


if __name__ == "__main__":
    main()
