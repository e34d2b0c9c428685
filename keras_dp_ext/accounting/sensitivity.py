"""How far one row can move the sum, and what a noise makes of it.

The one place where a bound and a noise meet. A pair without an analysis is an
error; a new pair is a few lines in `release_of`, with its proof beside them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_dp_ext.accounting import events
from keras_dp_ext.accounting.profile import Profile
from keras_dp_ext.noise import CorrelatedNoise, Gaussian, Laplace, Noise, NoiseSequence


class Sensitivity:
    """The set of vectors that one row can add to the sum."""


@dataclasses.dataclass(frozen=True)
class L2Sensitivity(Sensitivity):
    """All vectors of at most this L2 norm."""

    norm: float


@dataclasses.dataclass(frozen=True)
class L1Sensitivity(Sensitivity):
    """All vectors of at most this L1 norm."""

    norm: float


@dataclasses.dataclass(frozen=True)
class CodebookSensitivity(Sensitivity):
    """All vectors that are dominated, rank by rank, by a vector of the codebook."""

    codebook: Any
    num_parameters: int


def gaussian_release(
    deviation: float, l2_norm: float, examples_per_microbatch: int = 1
) -> events.GaussianRelease:
    """Rows of at most `l2_norm` under Gaussian noise of this standard deviation.

    A microbatch of several examples is not added but changed: from one vector to
    another one, which is twice the sensitivity.
    """
    changed = 1.0 if examples_per_microbatch == 1 else 2.0
    return events.GaussianRelease(deviation / (changed * l2_norm))


def release_of(
    sensitivity: Sensitivity,
    noise: Noise | NoiseSequence | CorrelatedNoise,
    examples_per_microbatch: int = 1,
) -> events.Event:
    """The event of a noised sum of rows.

    Args:
        sensitivity: Of one row.
        noise: Of every coordinate, in the units of the sum.
        examples_per_microbatch: Examples in a row.

    Raises:
        ValueError: If no bound on epsilon is known for the pair.
    """
    changed = examples_per_microbatch > 1
    if isinstance(noise, NoiseSequence):
        releases = tuple(
            release_of(sensitivity, one, examples_per_microbatch)
            for one in noise.noises
        )
        return events.ScheduledRelease(noise.starts, releases)
    if isinstance(noise, CorrelatedNoise):
        if isinstance(sensitivity, (L1Sensitivity, L2Sensitivity)):
            row = gaussian_release(
                noise.scale, sensitivity.norm, examples_per_microbatch
            )
            return events.CorrelatedRelease(row.noise_multiplier, noise)
    elif isinstance(sensitivity, CodebookSensitivity):
        return events.CodebookRelease(
            noise, sensitivity.codebook, sensitivity.num_parameters, changed
        )
    if isinstance(noise, Gaussian) and isinstance(
        sensitivity, L2Sensitivity | L1Sensitivity
    ):
        # An L1 norm is never below the L2 norm.
        return gaussian_release(noise.scale, sensitivity.norm, examples_per_microbatch)
    if isinstance(noise, Laplace) and isinstance(sensitivity, L1Sensitivity):
        # Of all vectors of one L1 norm, one along an axis is the worst: the log of
        # M_k is convex in the shift and 0 at 0, so that splitting it only lowers it.
        worst = Profile.from_values([sensitivity.norm])
        return events.NoiseRelease(noise, (worst,), replaced=changed)
    fits = (
        "Correlated noise fits every bound of a norm, such as `dp.bounding.L2Clip`."
        if isinstance(noise, CorrelatedNoise)
        else "Gaussian noise fits every bound; `dp.bounding.Encoding` fits every "
        "independent noise."
    )
    raise ValueError(
        f"No bound on epsilon is known for {type(noise).__name__} noise and a bound "
        f"of {sensitivity}. {fits} Received: noise={noise}"
    )
