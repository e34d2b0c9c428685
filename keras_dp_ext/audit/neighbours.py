"""Two batches that differ in one example, as badly as a mechanism lets them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dp_ext.accounting import Claim
from keras_dp_ext.audit.density import kullback_leibler, noise_of
from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms.base import Mechanism

# Saturates every filter and every clip, and its square is far from overflowing.
_HUGE = 1e6
# Vectors of a codebook that are tried out.
_CODEBOOK_TRIALS = 3


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Rows of per-example gradients with and without one example.

    Attributes:
        present: `[rows, parameters]`, with the example.
        absent: The same rows without it. For microbatches of several examples
            the row is not missing but another one.
        noise_scale: `[parameters]`, the measured spread of the noise.
    """

    present: np.ndarray
    absent: np.ndarray
    noise_scale: np.ndarray


def worst_neighbours(
    mechanism: Mechanism,
    shapes: Sequence[tuple[int, ...]],
    noise: np.ndarray,
    claim: Claim,
    examples_per_microbatch: int = 1,
) -> Neighbours:
    """Searches for the example that stands out most from the noise.

    Nothing here trusts what the mechanism says of itself: every candidate goes
    through its own `bound`, and is judged by how far the sum moves in units of
    the noise that its own `draw_noise` made.

    The candidates: everything in the quietest coordinate (against noise that is
    not the same everywhere), all coordinates saturated (against element-wise
    bounds), a geometric sequence, and the vectors of a codebook. The rest of the
    batch is one row that pulls the other way; a bound that takes the sum for a
    row would let the example turn that sum around.

    Args:
        mechanism: Built, in the state in which it is to be audited.
        shapes: The shapes of the variables.
        noise: `[draws, parameters]` of the mechanism's noise.
        claim: Of one release; says the density of the noise, if not Gaussian.
        examples_per_microbatch: Above 1 the example changes a row.

    Returns:
        The worst pair that was found.
    """
    # Robust, because some noises have no standard deviation.
    scale = np.median(np.abs(noise), axis=0) / 0.6745
    size = scale.size

    def batch(row: np.ndarray, last: np.ndarray) -> np.ndarray:
        return np.stack([-0.5 * row, last]).astype(np.float32)

    best, most = None, -math.inf
    for row in _candidates(mechanism, claim, scale):
        absent = -row if examples_per_microbatch > 1 else np.zeros(size)
        pair = Neighbours(batch(row, row), batch(row, absent), scale)
        shift = bounded_sum(mechanism, shapes, pair.present) - bounded_sum(
            mechanism, shapes, pair.absent
        )
        gain = _information(shift, scale, claim)
        if gain > most:
            best, most = pair, gain
    return best


def bounded_sum(
    mechanism: Mechanism, shapes: Sequence[tuple[int, ...]], rows: Any
) -> np.ndarray:
    """The mechanism's own `bound` of materialised rows, as one vector."""
    sums = mechanism.bound(MaterializedGradients(split_rows(rows, shapes)))
    return np.concatenate([np.ravel(value) for value in sums])


def split_rows(rows: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """`[rows, parameters]` cut into one `[rows, *shape]` for each variable."""
    import tensorflow as tf

    sizes = [math.prod(shape) for shape in shapes]
    return [
        tf.reshape(part, [rows.shape[0], *shape])
        for part, shape in zip(tf.split(rows, sizes, axis=1), shapes, strict=True)
    ]


def _candidates(
    mechanism: Mechanism, claim: Claim, scale: np.ndarray
) -> list[np.ndarray]:
    size = scale.size
    quietest = np.zeros(size)
    quietest[np.argmin(scale)] = _HUGE
    # Ratios of 0.9 fall into different buckets of an approximate ranking.
    geometric = _HUGE * 0.9 ** np.minimum(np.arange(size), 200)
    rows = [quietest, np.full(size, _HUGE), geometric]
    codebook = getattr(mechanism, "codebook", None)
    if codebook is not None:
        blocks = codebook.blocks(size)
        vectors = np.concatenate(
            [np.repeat(block.table, block.widths, axis=1) for block in blocks], axis=1
        )
        gains = [_information(vector, scale, claim) for vector in vectors[:100]]
        order = np.argsort(gains)[-_CODEBOOK_TRIALS:]
        rows += [1e3 * vectors[index].astype(np.float64) for index in order]
    return rows


def _information(shift: np.ndarray, scale: np.ndarray, claim: Claim) -> float:
    """The expected log-likelihood ratio between noise and shifted noise."""
    if not np.all(np.isfinite(shift)):
        return math.inf
    noise = noise_of(claim.between(0, 1)[0][0].proven)
    if noise is not None:
        return float(np.sum(kullback_leibler(noise, np.abs(shift))))
    moved = shift != 0
    with np.errstate(divide="ignore"):
        return float(0.5 * np.sum(np.square(shift[moved] / scale[moved])))
