"""How far an example moved a release, in units of what is claimed."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_dp_ext.accounting import CodebookRelease, CorrelatedRelease, GaussianRelease

# What rounding makes of two equal sums of float32 numbers.
_ROUNDING = 1e-5


def excess(difference: np.ndarray, deviation: np.ndarray, event: Any) -> float:
    """The shift of a released sum over the claimed sensitivity: at most 1.

    Args:
        difference: `[parameters]`, by which two neighbours' sums differ.
        deviation: `[parameters]`, the standard deviation of Gaussian noise; the scale
            of noise that is correlated.
        event: What is claimed of the release.

    Returns:
        0 where the sums are the same up to rounding.

    Raises:
        NotImplementedError: If the event is of another kind.
    """
    if not np.all(np.isfinite(difference)):
        return float("inf")
    if isinstance(event, CodebookRelease):
        return dominated_excess(difference, event)
    if not isinstance(event, (GaussianRelease, CorrelatedRelease)):
        raise NotImplementedError(
            f"The shift of {type(event).__name__} has no unit: only GaussianRelease, "
            f"CorrelatedRelease and CodebookRelease are known. Received: event={event}"
        )
    used = difference != 0
    with np.errstate(divide="ignore"):
        in_units_of_noise = np.linalg.norm(difference[used] / deviation[used])
    if event.noise_multiplier == 0:
        return 0.0  # It claims no privacy at all.
    shift = float(in_units_of_noise * event.noise_multiplier)
    return 0.0 if shift < _ROUNDING else shift


def dominated_excess(difference: np.ndarray, event: CodebookRelease) -> float:
    """The factor by which a codebook's vector must grow to dominate a difference."""
    blocks = event.codebook.blocks(event.num_parameters)
    if event.replaced:
        # The difference of two dominated vectors, wherever their coordinates are.
        return float(np.linalg.norm(difference) / (2 * event.codebook.norm))
    (block,) = blocks
    vectors = np.repeat(block.table, block.widths, axis=1).astype(np.float64)
    ranked = np.sort(np.abs(difference))[::-1]
    # Rounding of a difference of two weights must not count as a change.
    ranked = np.where(ranked < _ROUNDING, 0.0, ranked)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(ranked == 0, 0.0, ranked / vectors)
    return float(np.min(np.max(ratio, axis=1)))
