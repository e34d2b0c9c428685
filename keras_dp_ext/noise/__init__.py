"""NOISE stages: densities for the accountant, samplers for the training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_dp_ext.noise.base import Noise
from keras_dp_ext.noise.cauchy import Cauchy
from keras_dp_ext.noise.gaussian import Gaussian
from keras_dp_ext.noise.hyperbolic_secant import HyperbolicSecant
from keras_dp_ext.noise.laplace import Laplace
from keras_dp_ext.noise.schedule import NoiseSchedule
from keras_dp_ext.noise.student_t import StudentT
from keras_dp_ext.noise.variance_gamma import VarianceGamma

__all__ = [
    "Cauchy",
    "Gaussian",
    "HyperbolicSecant",
    "Laplace",
    "Noise",
    "NoiseSchedule",
    "StudentT",
    "VarianceGamma",
    "get",
]


def get(identifier: Noise | str | Mapping[str, Any]) -> Noise:
    """The noise that `identifier` stands for.

    Args:
        identifier: A `Noise`, a name such as "student-t" (default parameters) or
            a dictionary made by `Noise.serialize`.

    Returns:
        A `Noise`.

    Raises:
        ValueError: If `identifier` names no noise.

    Example:

    >>> get("student-t")
    StudentT(df=9.0, scale=1.0)
    >>> get(Laplace(scale=2.0).serialize())
    Laplace(scale=2.0)
    """
    if isinstance(identifier, Noise):
        return identifier
    if isinstance(identifier, str):
        name, config = identifier, {}
    elif isinstance(identifier, Mapping):
        name, config = identifier.get("class_name"), identifier.get("config", {})
    else:
        name, config = None, {}
    if name not in Noise.registry:
        raise ValueError(
            "Argument `noise` must be a Noise, a serialised one, or one of "
            f"{sorted({cls.name for cls in Noise.registry.values()})}. "
            f"Received: noise={identifier}"
        )
    return Noise.registry[name](**config)
