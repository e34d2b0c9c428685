"""Figure 2 of Abadi et al.: epsilon over epochs, by each composition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dp_ext.accounting.composition import COMPOSITIONS, compare

_LABELS = {
    "basic": "basic composition",
    "strong": "strong composition",
    "moments": "moments accountant",
    "rdp": "RDP, tight conversion",
    "pld": "PLD",
}

_SHOWN = tuple(name for name in COMPOSITIONS if name != "basic")


def plot_compositions(
    noise_multiplier: float = 4.0,
    rate: float = 0.01,
    delta: float = 1e-5,
    epochs: int = 400,
    compositions: Sequence[str] = _SHOWN,
    points: int = 20,
    axes: Any = None,
) -> Any:
    """Draws epsilon against the number of epochs.

    The defaults are those of Abadi et al., Figure 2, with today's accountants
    added. Needs matplotlib (`pip install keras_dp_ext[plot]`).

    Args:
        noise_multiplier: Standard deviation over sensitivity.
        rate: Poisson sampling rate; an epoch has `1 / rate` releases.
        delta: Total delta.
        epochs: Right end of the figure.
        compositions: Names from `composition.COMPOSITIONS`.
        points: Number of points of each curve.
        axes: Matplotlib axes to draw on; by default new ones.

    Returns:
        The axes.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots()
    shown = np.unique(np.linspace(1, epochs, points).round().astype(int))
    steps = [round(int(epoch) / rate) for epoch in shown]
    figures = compare(noise_multiplier, rate, steps, delta, compositions)
    for name, epsilons in figures.items():
        axes.plot(shown, epsilons, label=_LABELS[name])
    axes.set_xlabel("epochs")
    axes.set_ylabel("epsilon")
    axes.set_ylim(bottom=0)
    axes.set_title(
        f"q = {rate:g}, noise multiplier {noise_multiplier:g}, delta = {delta:g}"
    )
    axes.legend()
    return axes
