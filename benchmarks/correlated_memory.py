"""Peak memory of correlated noise, in copies of the model beyond DP-SGD's.

    python -m benchmarks.correlated_memory

Each in a process of its own: a few steps of one Dense layer of four million weights.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
from pathlib import Path

WIDTH, STEPS, BATCH = 2000, 6, 4
NOISES = {
    "independent": "Gaussian(1.0)",
    "banded, 4 bands": "Banded(4, steps=100)",
    "banded, 16 bands": "Banded(16, steps=100)",
    "banded, 64 bands": "Banded(64, steps=100)",
    "banded inverse, 4 bands": "BandedInverse(4)",
    "banded inverse, 16 bands": "BandedInverse(16)",
    "banded inverse, 64 bands": "BandedInverse(64)",
    "tree": "TreeAggregation()",
    "BLT, 3 buffers": "BufferedToeplitz(3, steps=100)",
}


def worker(noise: str) -> None:
    """Takes a few steps, and prints the peak in megabytes."""
    import keras
    import numpy as np

    import keras_dp_ext as dp

    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD, noise=eval(noise, vars(dp.noise)), learning_rate=0.1
    )
    layer = keras.layers.Dense(WIDTH, use_bias=False)
    model = keras.Sequential([keras.Input([WIDTH]), layer])
    model.compile(optimizer, "mse")
    x = np.ones([BATCH * STEPS, WIDTH], np.float32)
    model.fit(x, x, batch_size=BATCH, verbose=0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def peak(noise: str) -> float:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.correlated_memory", "--worker", noise],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return float(output.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker")
    results = Path("docs/results/correlated_memory.csv")
    parser.add_argument("--results", type=Path, default=results)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker)
        return
    copy = 4 * WIDTH**2 / 2**20
    peaks = {}
    with open(arguments.results, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["noise", "peak_megabytes", "copies_beyond_independent"])
        for name, noise in NOISES.items():
            peaks[name] = peak(noise)
            more = (peaks[name] - peaks["independent"]) / copy
            writer.writerow([name, round(peaks[name]), round(more, 1)])
            file.flush()
            print(f"{name:26}{peaks[name]:8.0f} MB{more:8.1f} copies", flush=True)


if __name__ == "__main__":
    main()
