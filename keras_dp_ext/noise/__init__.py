"""NOISE stages: densities for the accountant, samplers for the training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_dp_ext._value import deserialize
from keras_dp_ext.noise.base import Noise
from keras_dp_ext.noise.cauchy import Cauchy
from keras_dp_ext.noise.correlated import (
    Banded,
    BandedInverse,
    BufferedToeplitz,
    CorrelatedNoise,
    TreeAggregation,
)
from keras_dp_ext.noise.gaussian import Gaussian
from keras_dp_ext.noise.hyperbolic_secant import HyperbolicSecant
from keras_dp_ext.noise.laplace import Laplace
from keras_dp_ext.noise.schedule import NoiseSchedule
from keras_dp_ext.noise.sequence import NoiseSequence
from keras_dp_ext.noise.student_t import StudentT
from keras_dp_ext.noise.variance_gamma import VarianceGamma

__all__ = [
    "Banded",
    "BandedInverse",
    "BufferedToeplitz",
    "Cauchy",
    "CorrelatedNoise",
    "Gaussian",
    "HyperbolicSecant",
    "Laplace",
    "Noise",
    "NoiseSchedule",
    "NoiseSequence",
    "StudentT",
    "TreeAggregation",
    "VarianceGamma",
    "get",
    "get_any",
]


def get(identifier: Noise | str | Mapping[str, Any]) -> Noise:
    """The noise that `identifier` stands for, independent from release to release.

    Args:
        identifier: A `Noise`, a name such as "student-t" (default parameters) or
            a dictionary made by `Noise.serialize`.

    Returns:
        A `Noise`.

    Raises:
        ValueError: If `identifier` names no noise, or one that is correlated.

    Example:

    >>> get("student-t")
    StudentT(df=9.0, scale=1.0)
    >>> get(Laplace(scale=2.0).serialize())
    Laplace(scale=2.0)
    """
    noise = get_any(identifier)
    if not isinstance(noise, Noise):
        raise ValueError(
            "Argument `noise` must be one noise that is independent from release to "
            "release here. For correlated noise use `dp.optimizers.BandMFSGD`, "
            "`DPFTRLSGD`, `BLTSGD`, or "
            "`dp.optimizers.make_private(..., bound=dp.bounding.L2Clip(), noise=...)`. "
            f"Received: noise={identifier}"
        )
    return noise


def get_any(
    identifier: Noise | NoiseSequence | CorrelatedNoise | str | Mapping[Any, Any],
) -> Noise | NoiseSequence | CorrelatedNoise:
    """As `get`, also for correlated noise and for noises that follow one another.

    Args:
        identifier: Also a `CorrelatedNoise`, a `NoiseSequence`, or a dictionary from
            release numbers to noises, such as `{0: "gaussian", 500: "student-t"}`.

    Example:

    >>> get_any("tree")
    TreeAggregation(scale=1.0, restart_every=None)
    """
    if isinstance(identifier, CorrelatedNoise | NoiseSequence):
        return identifier
    if isinstance(identifier, str):
        identifier = {"class_name": identifier}
    if isinstance(identifier, Mapping):
        if identifier.get("class_name") == NoiseSequence.__name__:
            return NoiseSequence.from_config(identifier["config"])
        if identifier and all(isinstance(start, int) for start in identifier):
            starts = sorted(identifier)
            return NoiseSequence(
                tuple(starts), tuple(get(identifier[start]) for start in starts)
            )
    correlated = CorrelatedNoise.registry
    if isinstance(identifier, Mapping) and identifier.get("class_name") in correlated:
        return correlated[identifier["class_name"]].from_config(
            identifier.get("config", {})
        )
    return deserialize(Noise, identifier, "noise")  # type: ignore[type-abstract]
