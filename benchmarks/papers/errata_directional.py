"""Equation 13 of Xiang et al.: the noise that a neighbour meets, and what it costs.

    python -m benchmarks.papers.errata_directional [--fast] [--output-dir DIR]

The figure of docs/errata.md; it takes seconds in either mode.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers import common
from keras_dp_ext.accounting import GaussianRelease, Poisson, epsilon
from keras_dp_ext.analysis import directional_noise, plot_distortion, published_budget

PARAMETERS, LOT, EXAMPLES = 61_706, 512, 55_000
DRAWS = 15


def main() -> None:
    arguments = common.parse_arguments(__doc__, "errata_directional", data=False)
    budget = published_budget(1.0, common.DELTA, EXAMPLES, lot_size=LOT, epochs=60)
    # At this budget the direction w is nearly all noise.
    multipliers = np.stack(
        [
            np.sort(
                directional_noise(
                    np.random.default_rng(seed).normal(size=PARAMETERS),
                    budget.gradient_tau,
                ).standard_deviation
            )
            for seed in range(DRAWS)
        ]
    )
    sampling = Poisson(LOT / EXAMPLES)
    shares = np.geomspace(1 / PARAMETERS, 1, 9 if arguments.fast else 25)
    rows = []
    for share in shares:
        values = multipliers[:, round(share * PARAMETERS) - 1]
        epsilons = [
            epsilon([(GaussianRelease(float(v)), sampling, budget.steps)], common.DELTA)
            for v in values
        ]
        rows.append(
            {
                "share_of_coordinates": float(share),
                "noise_multiplier": float(np.median(values)),
                # The least of many has heavy tails: quartiles, not deviations.
                "epsilon_median": float(np.median(epsilons)),
                "epsilon_quartile_1": float(np.percentile(epsilons, 25)),
                "epsilon_quartile_3": float(np.percentile(epsilons, 75)),
                "draws": DRAWS,
            }
        )
    left, right = common.new_axes(2)
    middle, low, high = (
        [row[f"epsilon_{name}"] for row in rows]
        for name in ("median", "quartile_1", "quartile_3")
    )
    left.plot(shares, middle, "--", color="#D55E00", label="as printed", linewidth=1.8)
    left.fill_between(shares, low, high, color="#D55E00", alpha=0.18, linewidth=0)
    left.axhline(1.0, color="#333333", label="published: 1")
    left.set_xscale("log")
    left.set_yscale("log")
    common.finish(
        left,
        "Xiang et al., Eq. 13: LeNet on MNIST, budget ε = 1",
        "neighbour along the coordinate of this rank (share)",
        "ε of that neighbour",
    )
    # Where neither weights nor moments vary, printed and isotropic noise coincide.
    plot_distortion(
        np.geomspace(0.1, 10, 15),
        second_moments=np.geomspace(1e-6, 1.0, 200),
        weights=np.geomspace(0.1, 1.0, 200),
        axes=right,
    )
    common.finish(
        right, "Theorem 3: distortion of one release", "ε of one release", "distortion"
    )
    worst = rows[0]
    common.write(
        arguments,
        "errata_directional",
        rows,
        left.figure,
        f"""Xiang et al., Equation 13. The paper says that its noise costs epsilon 1. Left:
        a neighbour that differs along the quietest of {PARAMETERS:,} coordinates meets a
        noise multiplier of {worst["noise_multiplier"]:.2f}, which is a proven epsilon of
        {worst["epsilon_median"]:.0f} after 60 epochs (median of {DRAWS} directions w,
        quartiles {worst["epsilon_quartile_1"]:.0f} and
        {worst["epsilon_quartile_3"]:.0f}). They differ because the printed
        worst case, along w, is not the worst (docs/errata.md). Right: distortion of one
        release by isotropic noise, by the printed noise at its claimed epsilon, by
        proven directional noise (clipped inside an ellipsoid), and the lower bound of
        Theorem 3.""",
    )


if __name__ == "__main__":
    main()
