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
# Vectors of a codebook: how many are ranked, and how many of these tried out.
_CODEBOOK_TRIALS = 3
_CODEBOOK_VECTORS = 100
# Parameters up to which all pairs of coordinates are looked at.
_LARGEST_COVARIANCE = 256


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Rows of per-example gradients with and without one example.

    Attributes:
        present: `[rows, parameters]`, with the example.
        absent: The same rows without it. For microbatches of several examples
            the row is not missing but another one.
        weights: `[parameters]`, on which the adversary projects what it sees.
        spread: Measured scale of the projected noise.
    """

    present: np.ndarray
    absent: np.ndarray
    weights: np.ndarray
    spread: float


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
    not the same everywhere), along the quietest direction (against noise that
    cancels out, such as one seed for two variables), all coordinates saturated
    (against element-wise bounds), a geometric sequence, and the vectors of a
    codebook. The rest of the batch is one row that pulls the other way; a bound
    that takes the sum for a row would let the example turn that sum around.

    Args:
        mechanism: Built, in the state in which it is to be audited.
        shapes: The shapes of the variables.
        noise: `[draws, parameters]` of the mechanism's noise.
        claim: Of one release; says the density of the noise, if not Gaussian.
        examples_per_microbatch: Above 1 the example changes a row.

    Returns:
        The worst pair that was found.
    """
    scale = _scale(noise)
    # Behind the gradients' coordinates may be those of further statistics.
    size = sum(math.prod(shape) for shape in shapes)

    def batch(row: np.ndarray, last: np.ndarray) -> np.ndarray:
        return np.stack([-0.5 * row, last]).astype(np.float32)

    best, most = None, -math.inf
    for row, direction in _candidates(mechanism, claim, noise[:, :size], scale[:size]):
        absent = -row if examples_per_microbatch > 1 else np.zeros(size)
        rows = batch(row, row), batch(row, absent)
        present_sum, absent_sum = (bounded_sum(mechanism, shapes, r) for r in rows)
        shift = np.nan_to_num(
            present_sum - absent_sum, nan=_HUGE, posinf=_HUGE, neginf=-_HUGE
        )
        # Optimal for independent Gaussian noise of these scales.
        weights = (
            shift / np.square(_positive(scale))
            if direction is None
            else np.pad(direction, [0, scale.size - size])
        )
        spread = float(_scale(noise @ weights))
        gain = _information(shift, weights, spread, claim)
        if gain > most:
            best, most = Neighbours(*rows, weights, spread), gain
    return best


def _scale(values: np.ndarray) -> np.ndarray:
    """A standard deviation that also exists for heavy tails, along axis 0."""
    return np.median(np.abs(values), axis=0) / 0.6745


def _positive(scale: np.ndarray) -> np.ndarray:
    return np.maximum(scale, 1e-6 * np.max(scale, initial=1e-6))


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
    mechanism: Mechanism, claim: Claim, noise: np.ndarray, scale: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Rows, each with the direction to project on if it is a special one."""
    size = scale.size
    quietest = np.zeros(size)
    quietest[np.argmin(scale)] = _HUGE
    # Ratios of 0.9 fall into different buckets of an approximate ranking.
    geometric = _HUGE * 0.9 ** np.minimum(np.arange(size), 200)
    rows = [quietest, np.full(size, _HUGE), geometric]
    if mechanism.codebook is not None:
        blocks = mechanism.codebook.blocks(size)
        vectors = np.concatenate(
            [np.repeat(block.table, block.widths, axis=1) for block in blocks], axis=1
        )[:_CODEBOOK_VECTORS].astype(np.float64)
        spread = np.median(scale)
        gains = [
            _information(vector, vector, spread * np.linalg.norm(vector), claim)
            for vector in vectors
        ]
        order = np.argsort(gains)[-_CODEBOOK_TRIALS:]
        rows += [1e3 * vectors[index] for index in order]
    candidates: list[tuple[np.ndarray, np.ndarray | None]] = [
        (row, None) for row in rows
    ]
    if 1 < size <= _LARGEST_COVARIANCE:
        standard = np.clip(noise / _positive(scale), -5.0, 5.0)
        values, vectors = np.linalg.eigh(np.cov(standard, rowvar=False))
        # Below what chance makes of independent noise (Marchenko-Pastur).
        if values[0] < 0.5 * max(0.0, 1.0 - math.sqrt(size / len(noise))) ** 2:
            direction = vectors[:, 0] / _positive(scale)
            candidates.append(
                (_HUGE * direction / np.max(np.abs(direction)), direction)
            )
    return candidates


def _information(
    shift: np.ndarray, weights: np.ndarray, spread: float, claim: Claim
) -> float:
    """The expected log-likelihood ratio between noise and shifted noise."""
    noise = noise_of(claim.between(0, 1)[0][0].proven)
    if noise is not None:
        return float(np.sum(kullback_leibler(noise, np.abs(shift))))
    moved = abs(float(shift @ weights))
    return 0.0 if moved == 0 else 0.5 * (moved / max(spread, 1e-300)) ** 2
