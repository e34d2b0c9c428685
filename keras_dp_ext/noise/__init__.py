"""NOISE stages: densities for the accountant, samplers for the training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_dp_ext._value import deserialize
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
    if isinstance(identifier, str):
        identifier = {"class_name": identifier}
    return deserialize(Noise, identifier, "noise")  # type: ignore[type-abstract]
