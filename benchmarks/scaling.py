"""How the step grows with the batch and with the model: linearly, log against log.

python -m benchmarks.scaling --figure scaling.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.workloads import (
    MECHANISMS,
    WORKLOADS,
    Workload,
    make_step,
    mlp_layers,
    timed,
)

BATCH_SIZES = (32, 128, 512, 2048, 4096)
MODEL_SIZES = (10**4, 10**5, 10**6, 10**7)


def mlp(parameters: int) -> Workload:
    """An MLP of about this many parameters."""
    hidden = max(1, round((parameters - 10) / 795))

    def build(keras):
        return keras.Sequential(mlp_layers(keras, hidden))

    return Workload(f"MLP 784-{hidden}-10", 256, (784,), 10, build)


def seconds_of(workload: Workload, mechanism: str, batch_size: int, steps: int):
    """Median processor seconds of a step."""
    step = make_step(workload, mechanism, batch_size=batch_size)
    timed(step, 2)
    return float(np.median([processors for _, processors in timed(step, steps)]))


def slope(sizes, seconds) -> float:
    """Exponent of a power law through the upper half, where overhead is small."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


def plot(results: dict[str, dict], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(1, len(results), figsize=(5 * len(results), 4))
    for axes, (title, curves) in zip(
        np.atleast_1d(all_axes), results.items(), strict=True
    ):
        for name, (sizes, seconds) in curves.items():
            axes.loglog(sizes, seconds, "o-", label=name)
        axes.set_xlabel(title)
        axes.set_ylabel("processor seconds per step")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mechanisms", default=",".join(MECHANISMS))
    parser.add_argument("--batch-workload", default="W1")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)))
    parser.add_argument("--model-sizes", default=",".join(map(str, MODEL_SIZES)))
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--figure", metavar="PATH")
    arguments = parser.parse_args()
    mechanisms = ["plain", *arguments.mechanisms.split(",")]
    batches = [int(size) for size in arguments.batch_sizes.split(",")]
    models = [int(size) for size in arguments.model_sizes.split(",")]
    results: dict[str, dict] = {}

    def record(title, name, sizes, seconds):
        results.setdefault(title, {})[name] = (sizes, seconds)
        print(
            f"{title:12} {name:12} exponent {slope(sizes, seconds):.2f}:",
            ", ".join(
                f"{size}: {1000 * s:.1f} ms"
                for size, s in zip(sizes, seconds, strict=True)
            ),
            flush=True,
        )

    for name in mechanisms:
        workload = WORKLOADS[arguments.batch_workload]
        times = [seconds_of(workload, name, b, arguments.steps) for b in batches]
        record("batch size", name, batches, times)
    for name in mechanisms:
        times = [seconds_of(mlp(size), name, 64, arguments.steps) for size in models]
        record("parameters", name, models, times)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    if arguments.figure:
        plot(results, arguments.figure)


if __name__ == "__main__":
    main()
