"""Closed forms of directional noise: as printed, corrected, and made true."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class DirectionalNoise:
    """Solution of Xiang et al., Eq. 8, for one vector of weights.

    Attributes:
        lagrange_multiplier: `lambda` of Eq. 12.
        shift: `Delta_i`, the neighbour's difference that the noise is made for.
        standard_deviation: `sigma_i` of Eq. 11.
        noise_multiplier: What a neighbour really faces: the quietest coordinate's
            `sigma_i` over the sensitivity. The solution honours its own
            constraint for every neighbour only if this is `tau**-0.5`.
    """

    lagrange_multiplier: float
    shift: np.ndarray
    standard_deviation: np.ndarray
    noise_multiplier: float


def directional_noise(
    weights: npt.ArrayLike,
    tau: float,
    sensitivity: float = 1.0,
    rule: Literal["printed", "corrected"] = "printed",
) -> DirectionalNoise:
    """Noise that minimises `sum_i |w_i| sigma_i` under a privacy constraint.

    The constraint (Eq. 8b) is `sum_i (Delta_i / sigma_i)**2 <= tau` for every
    `Delta` in the ball of radius `sensitivity`. For one given `Delta` the
    optimum is Eq. 11. Which `Delta` is the worst one is where the paper errs:
    Eq. 13 takes `Delta_i ~ |w_i|`, but `sum_i (Delta_i |w_i|)**(2/3)` is greatest
    on the sphere at `Delta_i ~ |w_i|**0.5`. With the correct one Eq. 11 gives
    equal `sigma_i`: under an L2 ball, isotropic noise is optimal.

    Args:
        weights: `w_i`, the impact of coordinate `i`; only magnitudes count.
        tau: Bound on the squared signal-to-noise ratio.
        sensitivity: `alpha`, greatest L2 norm of a neighbour's difference.
        rule: `"printed"` for Eq. 13 as it stands, `"corrected"` for its optimum.

    Returns:
        The multiplier, shift and standard deviations.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> printed = directional_noise([1.0, 4.0], tau=1.0)
    >>> corrected = directional_noise([1.0, 4.0], tau=1.0, rule="corrected")
    >>> corrected.standard_deviation
    array([1., 1.])
    >>> bool(printed.noise_multiplier < 1.0)  # Less noise than accounted.
    True

    References:
        Xiang et al., "Differentially-Private Deep Learning With Directional
        Noise" (2021), Eq. 8 to 13.
    """
    weights = np.abs(np.asarray(weights, np.float64))
    if weights.ndim != 1 or not np.all(np.isfinite(weights)) or not weights.any():
        raise ValueError(
            "Argument `weights` must be a finite vector, not all zero. "
            f"Received: weights={weights}"
        )
    if not (tau > 0 and sensitivity > 0):
        raise ValueError(
            "Arguments `tau` and `sensitivity` must be positive. "
            f"Received: tau={tau}, sensitivity={sensitivity}"
        )
    if rule == "printed":
        shift = weights
    elif rule == "corrected":
        shift = np.sqrt(weights)
    else:
        raise ValueError(
            f'Argument `rule` must be "printed" or "corrected". Received: rule={rule!r}'
        )
    shift = sensitivity * shift / np.linalg.norm(shift)
    # Eq. 12, with c_1 = 3 / 2**(2/3), which the paper leaves unsaid.
    lagrange_multiplier = 0.5 * (minimised_cost(weights, shift) / tau) ** 1.5
    # Eq. 11. A weight of 0 has no noise cost: the limit of Delta_i**2 / w_i is
    # sensitivity**2 / sum(w) under the corrected rule, and 0 under the printed one.
    if rule == "corrected":
        ratio = np.full_like(weights, sensitivity**2 / weights.sum())
    else:
        ratio = sensitivity**2 * weights / np.sum(np.square(weights))
    standard_deviation = np.cbrt(2 * lagrange_multiplier * ratio)
    return DirectionalNoise(
        lagrange_multiplier=float(lagrange_multiplier),
        shift=shift,
        standard_deviation=standard_deviation,
        noise_multiplier=float(standard_deviation.min() / sensitivity),
    )


def minimised_cost(weights: npt.ArrayLike, shift: npt.ArrayLike) -> float:
    """`sum_i (Delta_i |w_i|)**(2/3)`: the neighbour maximises, the noise minimises.

    Example: the erratum on Eq. 13 in one line, for `w = (1, 4)`.

    >>> w = np.array([1.0, 4.0])
    >>> [round(minimised_cost(w, d / np.linalg.norm(d)), 3) for d in (w, np.sqrt(w))]
    [2.858, 2.924]
    """
    products = np.abs(np.asarray(shift, np.float64) * np.asarray(weights, np.float64))
    return float(np.sum(np.cbrt(products) ** 2))


def ellipsoid_scales(
    second_moments: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    exponent: float = 1 / 3,
) -> np.ndarray:
    """Axes of the clipping ellipsoid that make directional noise true.

    Rows are clipped to `sum_i (g_i / s_i)**2 <= C**2` and get noise of standard
    deviation `sigma * C * s_i`: a Gaussian mechanism of multiplier `sigma`,
    whatever `s` is. Minimising `sum_i |w_i| s_i` at a given `sum_i v_i / s_i**2`
    gives `s_i ~ (v_i / |w_i|)**(1/3)`, Eq. 11 with `Delta_i**2 = v_i`; minimising
    `sum_i s_i**2` gives AdaClip's `v_i**(1/4)`.

    The result is normalised to `sum_i v_i / s_i**2 = sum_i v_i`: the mean squared
    norm that meets the clip is that of the unscaled gradient, so `C` and the
    learning rate keep the meaning they have in DP-SGD (`s = 1`).

    Args:
        second_moments: `v_i`, the mean square of coordinate `i`; positive.
        weights: `w_i`, or `None` for 1.
        exponent: 1/3, or 1/4 for AdaClip.

    Returns:
        The positive axes `s_i`.

    References:
        Xiang et al. (2021), Eq. 11; Pichapati et al., "AdaCliP: Adaptive
        Clipping for Private SGD" (2019), Eq. 8.
    """
    second_moments = np.asarray(second_moments, np.float64)
    weights = np.ones_like(second_moments) if weights is None else np.abs(weights)
    if not (np.all(second_moments > 0) and np.all(weights > 0)):
        raise ValueError(
            "Arguments `second_moments` and `weights` must be positive everywhere. "
            f"Received: second_moments={second_moments}, weights={weights}"
        )
    raw = (second_moments / weights) ** exponent
    return raw * np.sqrt(
        np.sum(second_moments / np.square(raw)) / np.sum(second_moments)
    )


def principal_weights(
    features: npt.ArrayLike, components: int | None = None
) -> np.ndarray:
    """How much each feature matters, from a PCA of *public* features.

    The paper names SVD and PCA of the feature matrix as ways to find `w`. A layer's
    weight counts as much as the feature that it multiplies: the root of its variance
    that the first principal components hold.

    Args:
        features: `[examples, features]`, not from the private data: `w` is known to
            the attacker.
        components: How many principal components count; by default all, which gives
            standard deviations.

    Returns:
        `[features]`, the largest 1. For a dense kernel of shape `[features, units]`,
        `np.repeat(w[:, None], units, axis=1)` is a public `direction`.

    Raises:
        ValueError: If `features` is no matrix with variance, or `components` is not
            between 1 and the number of features.

    Example: two features, of which the first varies more.

    >>> principal_weights([[2.0, 0.0], [-2.0, 1.0], [0.0, -1.0]], components=2).round(2)
    array([1. , 0.5])

    References:
        Xiang et al. (2021), section 4.2.
    """
    features = np.asarray(features, np.float64)
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(
            "Argument `features` must be a matrix of at least two rows. "
            f"Received: shape {features.shape}"
        )
    count = features.shape[1] if components is None else components
    if not 1 <= count <= features.shape[1]:
        raise ValueError(
            "Argument `components` must be between 1 and the number of features, "
            f"{features.shape[1]}. Received: components={components}"
        )
    centred = features - features.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    weights = np.sqrt(np.square(singular[:count, None] * axes[:count]).sum(axis=0))
    if not weights.max() > 0:
        raise ValueError("Argument `features` must vary. Received: constant features")
    return weights / weights.max()
