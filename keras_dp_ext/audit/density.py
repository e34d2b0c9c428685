"""What an event says about the density of its noise, as an attacker uses it."""

from __future__ import annotations

import numpy as np

from keras_dp_ext.accounting import Event
from keras_dp_ext.noise import CorrelatedNoise, Gaussian, Noise

_QUADRATURE = 4001


def noise_of(event: Event) -> Noise | None:
    """The noise of every coordinate, or `None` where it is Gaussian.

    Gaussian noise may differ by coordinate and is measured instead.
    """
    noise = getattr(event, "noise", None)
    return None if isinstance(noise, (Gaussian, CorrelatedNoise)) else noise


def log_likelihood_ratio(
    noise: Noise, observed: np.ndarray, shift: np.ndarray
) -> np.ndarray:
    """`log z(x - shift) - log z(x)`, summed over the last axis."""
    moved = np.flatnonzero(np.any(shift != 0, axis=tuple(range(shift.ndim - 1))))
    x, shift = observed[..., moved], shift[..., moved]
    return np.sum(noise.log_density(x - shift) - noise.log_density(x), axis=-1)


def kullback_leibler(noise: Noise, shift: np.ndarray) -> np.ndarray:
    """Divergence of the shifted noise from the noise, for each shift."""
    # Equal steps in probability: tails that matter little get few points.
    tail = (np.arange(_QUADRATURE // 2) + 0.5) / _QUADRATURE
    upper = noise.upper_quantile(tail)
    x = np.concatenate([-upper, upper])
    distinct, inverse = np.unique(shift, return_inverse=True)
    at_zero = noise.log_density(x)
    divergence = [np.mean(at_zero - noise.log_density(x + s)) for s in distinct]
    return np.asarray(divergence)[inverse]
