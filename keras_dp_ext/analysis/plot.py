"""Distortion against epsilon: isotropic, published and proven noise, and the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dp_ext.analysis.directional import directional_noise, ellipsoid_scales
from keras_dp_ext.analysis.distortion_rate import (
    distortion_rate_bound,
    gaussian_entropy,
)
from keras_dp_ext.analysis.mutual_information import mutual_information_bound


def distortion_curves(
    epsilons: npt.ArrayLike,
    second_moments: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    delta: float = 1e-5,
) -> dict[str, np.ndarray]:
    """Distortion `sum_i w_i**2 E noise_i**2` of one release, by mechanism.

    The gradient is taken as normal with independent coordinates of variance
    `second_moments`, clipped at its root mean square norm. `"published"` has the
    noise that its accounting asks for at each epsilon: its curve is what the paper
    would plot, and its true epsilon is greater (see `directional_noise`).
    `"bound"` holds for pure epsilon-DP; the three mechanisms are
    (epsilon, delta)-DP.

    Args:
        epsilons: Where to evaluate, each positive.
        second_moments: `v_i`, positive.
        weights: `w_i`, or `None` for 1.
        delta: Failure probability of the Gaussian mechanisms.

    Returns:
        For each of `"isotropic"`, `"published"`, `"proven"` and `"bound"`, one
        distortion for each epsilon.
    """
    epsilons = np.atleast_1d(np.asarray(epsilons, np.float64))
    second_moments = np.asarray(second_moments, np.float64)
    weights = np.ones_like(second_moments) if weights is None else np.asarray(weights)
    clip = np.sqrt(second_moments.sum())
    multipliers = np.array([_gaussian_multiplier(e, delta) for e in epsilons])

    def distortion(standard_deviation: npt.ArrayLike) -> np.ndarray:
        cost = np.sum(np.square(weights * standard_deviation))
        return np.square(multipliers * clip) * cost

    entropies = gaussian_entropy(np.sqrt(second_moments))
    return {
        "isotropic": distortion(np.ones_like(weights)),
        "published": distortion(directional_noise(weights, 1.0).standard_deviation),
        "proven": distortion(ellipsoid_scales(second_moments, weights)),
        "bound": np.array(
            [
                distortion_rate_bound(
                    mutual_information_bound(e), weights, entropies
                ).distortion
                for e in epsilons
            ]
        ),
    }


def plot_distortion(
    epsilons: npt.ArrayLike,
    second_moments: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    delta: float = 1e-5,
    axes: Any = None,
) -> Any:
    """Plots `distortion_curves` and returns the matplotlib axes.

    Example:

    >>> axes = plot_distortion(np.geomspace(0.5, 8, 20), np.logspace(-4, 0, 50))
    >>> axes.figure.savefig("distortion.png")  # doctest: +SKIP
    """
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(6, 4), layout="constrained").add_subplot()
    styles = {
        "isotropic": ("isotropic (DP-SGD)", "C0-"),
        "published": ("directional as printed (not at this epsilon)", "C3--"),
        "proven": ("directional, proven", "C2-"),
        "bound": ("lower bound (Theorem 3)", "k:"),
    }
    curves = distortion_curves(epsilons, second_moments, weights, delta)
    for name, (label, style) in styles.items():
        axes.loglog(epsilons, curves[name], style, label=label)
    # The bound falls off a cliff once the rate exceeds a few nats a coordinate.
    axes.set_ylim(bottom=1e-6 * np.max(curves["isotropic"]))
    axes.set_xlabel("epsilon of one release")
    axes.set_ylabel("expected distortion")
    axes.legend()
    return axes


def _gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier of an (epsilon, delta)-DP Gaussian mechanism."""
    # Here, because it takes a second that no other part of `analysis` needs.
    from dp_accounting.pld import common, privacy_loss_mechanism

    return privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
        common.DifferentialPrivacyParameters(epsilon, delta), sensitivity=1
    ).standard_deviation
