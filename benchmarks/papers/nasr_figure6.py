"""Figure 6 of Nasr et al.: how far six noises move a gradient at equal privacy.

For each noise and each Renyi budget D_2, the noise is scaled until one release of
an encoded gradient costs exactly that budget. Then the L1 distance between the
privatised vector and the vector before the noise is measured, for each coordinate,
through the mechanism that ships.

    python benchmarks/papers/nasr_figure6.py --output-dir runs/figure6 [--fast]

writes `nasr_figure6.csv` and `nasr_figure6.png`, and prints the ranking.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import numpy as np
import tensorflow as tf
from scipy import optimize

from keras_dp_ext import accounting, noise
from keras_dp_ext.bounding import Codebook
from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms import Encoded

NOISES = ("gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech")
ORDER = 2.0


def renyi_budget(codebook: Codebook, distribution: noise.Noise, size: int) -> float:
    """D_2 of one release without sampling."""
    claim = Encoded(codebook, distribution).claim(size).proven
    return float(accounting.rdp_per_release(claim, accounting.FullBatch(), [ORDER])[0])


def calibrated(name: str, budget: float, codebook: Codebook, size: int) -> noise.Noise:
    """The noise at the scale whose D_2 is `budget`."""
    standard = noise.get(name)

    def excess(log_scale: float) -> float:
        scaled = standard.with_scale(math.exp(log_scale))
        return math.log(renyi_budget(codebook, scaled, size) / budget)

    # In high dimension D_2 is the Fisher information times the squared norm.
    guess = 0.5 * math.log(standard.fisher_information / budget)
    root = optimize.brentq(excess, guess - 1.5, guess + 1.5, xtol=1e-4)
    return standard.with_scale(math.exp(root))


def distances(mechanism: Encoded, gradients: np.ndarray, draws: int) -> np.ndarray:
    """L1 distance for each coordinate, one for each draw of the noise."""
    size = gradients.shape[1]
    original = mechanism.bound(MaterializedGradients([gradients]))[0]
    results = []
    for draw in range(draws):
        seed = tf.constant([2020, draw])
        (drawn,) = mechanism.draw_noise([(size,)], seed, tf.constant(0, tf.int64))
        privatised = original + drawn
        results.append(float(tf.reduce_mean(tf.abs(privatised - original))))
    return np.array(results)


def run(size: int, vectors: int, budgets: np.ndarray, draws: int) -> list[dict]:
    codebook = Codebook(size=vectors)
    gradients = np.random.default_rng(0).standard_normal([16, size])
    rows = []
    for name in NOISES:
        for budget in budgets:
            distribution = calibrated(name, budget, codebook, size)
            mechanism = Encoded(codebook, distribution)
            measured = distances(mechanism, gradients.astype(np.float32), draws)
            rows.append(
                {
                    "noise": name,
                    "renyi_budget_2": float(budget),
                    "scale": distribution.scale,
                    "l1_per_coordinate_mean": measured.mean(),
                    "l1_per_coordinate_median": np.median(measured),
                    "l1_per_coordinate_max": measured.max(),
                    "standard_deviation": distribution.standard_deviation,
                }
            )
    return rows


def draw_figure(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name in NOISES:
        of_noise = [row for row in rows if row["noise"] == name]
        axes.plot(
            [row["renyi_budget_2"] for row in of_noise],
            [row["l1_per_coordinate_median"] for row in of_noise],
            marker="o",
            markersize=3,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("Renyi budget of one release, $D_2$")
    axes.set_ylabel("L1 distance per coordinate (median of draws)")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path("runs/nasr_figure6"))
    parser.add_argument("--fast", action="store_true", help="seconds, not minutes")
    arguments = parser.parse_args()
    if arguments.fast:
        rows = run(2000, 50, np.geomspace(0.2, 2.0, 3), draws=5)
    else:
        rows = run(26_010, 1000, np.geomspace(0.05, 4.0, 10), draws=21)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    with open(arguments.output_dir / "nasr_figure6.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=rows[0])
        writer.writeheader()
        writer.writerows(rows)
    draw_figure(rows, arguments.output_dir / "nasr_figure6.png")
    for name in NOISES:
        ratios = [
            row["l1_per_coordinate_median"] * math.sqrt(row["renyi_budget_2"])
            for row in rows
            if row["noise"] == name
        ]
        print(f"{name:15s} L1 * sqrt(D_2): {min(ratios):.4f} to {max(ratios):.4f}")


if __name__ == "__main__":
    main()
