"""Equation 13 of Xiang et al.: the noise that a neighbour meets, and what it costs.

    python -m benchmarks.papers.errata_directional [--output-dir DIR]

The figure of docs/errata.md.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers import common
from keras_dp_ext.accounting import GaussianRelease, Poisson, epsilon
from keras_dp_ext.analysis import directional_noise, plot_distortion, published_budget

PARAMETERS, LOT, EXAMPLES = 61_706, 512, 55_000


def main() -> None:
    arguments = common.parse_arguments(__doc__, "errata_directional")
    budget = published_budget(1.0, common.DELTA, EXAMPLES, lot_size=LOT, epochs=60)
    weights = np.random.default_rng(0).normal(size=PARAMETERS)
    printed = directional_noise(weights, budget.gradient_tau)
    multipliers = np.sort(printed.standard_deviation)
    shares = np.geomspace(1 / PARAMETERS, 1, 25)
    rows = []
    for share in shares:
        multiplier = float(multipliers[round(share * PARAMETERS) - 1])
        entries = [(GaussianRelease(multiplier), Poisson(LOT / EXAMPLES), budget.steps)]
        rows.append(
            {
                "share_of_coordinates": float(share),
                "noise_multiplier": multiplier,
                "epsilon": epsilon(entries, common.DELTA),
            }
        )
    left, right = common.new_axes(2)
    left.loglog(shares, [row["epsilon"] for row in rows], label="as printed")
    left.axhline(1.0, color="k", linestyle="--", label="published: 1")
    left.set_xlabel("neighbour along the coordinate of this rank (share)")
    left.set_ylabel("epsilon of that neighbour")
    left.set_title("LeNet on MNIST, budget epsilon 1")
    left.legend(fontsize=8)
    second_moments = np.geomspace(1e-4, 1.0, 200)
    plot_distortion(np.geomspace(0.1, 10, 15), second_moments, axes=right)
    worst = rows[0]
    common.write(
        arguments,
        "errata_directional",
        rows,
        left.figure,
        f"""Xiang et al., Equation 13. Left: a neighbour that differs along the quietest
        of {PARAMETERS} coordinates meets a noise multiplier of
        {worst["noise_multiplier"]:.2f}, which is epsilon {worst["epsilon"]:.0f} after 60
        epochs, where 1 is claimed. Right: distortion of one release by isotropic noise,
        the printed noise at its claimed epsilon, proven directional noise (clipped
        inside an ellipsoid), and the lower bound of the paper's Theorem 3.""",
    )


if __name__ == "__main__":
    main()
