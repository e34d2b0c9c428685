"""Pictures of audits: what attacks achieve, and what epsilon allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_dp_ext.audit.confidence import true_positive_bound
from keras_dp_ext.audit.results.mechanism_audit import MechanismAudit
from keras_dp_ext.audit.roc import Roc

# Accused negatives from which on a rate says something.
_FEWEST = 10


def plot_roc(
    curves: Mapping[str, Roc],
    epsilon: float | None = None,
    delta: float = 1e-5,
    axes: Any = None,
) -> Any:
    """Plots curves on logarithmic axes, where attacks on few people show.

    They begin where ten negatives are accused: what is further left is a matter of
    luck, and would seem to cross bounds that hold.

    Args:
        curves: Curves by the label that they get.
        epsilon: If given, the bound of (epsilon, delta)-DP is drawn, too.
        delta: See `epsilon`.
        axes: Matplotlib axes; by default of a new figure.

    Returns:
        The axes.
    """
    axes = _new_axes() if axes is None else axes
    least = min(_FEWEST / len(roc.negative) for roc in curves.values())
    grid = np.geomspace(min(least, 0.5), 1.0, 400)
    axes.plot(grid, grid, color="0.7", linestyle=":", label="guessing")
    for name, roc in curves.items():
        seen = roc.false_positive_rates >= _FEWEST / len(roc.negative)
        axes.plot(
            roc.false_positive_rates[seen],
            roc.true_positive_rates[seen],
            drawstyle="steps-post",
            label=f"{name} (AUC {roc.auc:.3f})",
        )
    if epsilon is not None:
        bound = true_positive_bound(grid, epsilon, delta)
        axes.fill_between(grid, bound, 1.0, color="C3", alpha=0.12, linewidth=0)
        axes.plot(
            grid, bound, color="C3", label=f"ruled out by ({epsilon:.3g}, {delta:g})-DP"
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(grid[0], 1),
        ylim=(grid[0], 1.05),
        xlabel="false positive rate",
        ylabel="true positive rate",
    )
    axes.legend(loc="lower right", fontsize="small")
    return axes


def plot_audit(audit: MechanismAudit, axes: Any = None) -> Any:
    """Plots the adversary's curve, with what each claimed epsilon allows.

    Args:
        audit: From `audit_mechanism`.
        axes: Matplotlib axes; by default of a new figure.

    Returns:
        The axes.
    """
    absent, present = audit.scores
    axes = plot_roc({"measured": Roc(present, absent)}, axes=axes)
    left, right = axes.get_xlim()
    grid = np.geomspace(left, right, 400)
    claims = {"proven": (audit.proven_epsilon, "C2")}
    if audit.published_epsilon != audit.proven_epsilon:
        claims["published"] = (audit.published_epsilon, "C3")
    for name, (epsilon, color) in claims.items():
        if np.isfinite(epsilon):
            axes.plot(
                grid,
                true_positive_bound(grid, epsilon, audit.delta),
                color=color,
                linestyle="--",
                label=f"most that epsilon {epsilon:.3g} allows ({name})",
            )
    axes.legend(loc="lower right", fontsize="small")
    axes.set_title(f"{audit.mechanism}: measured epsilon >= {audit.epsilon:.3g}")
    return axes


def _new_axes() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(5, 4.5), layout="constrained").add_subplot()
