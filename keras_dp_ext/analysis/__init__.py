"""Bounds and closed forms behind the mechanisms; NumPy and SciPy only."""

from keras_dp_ext.analysis.directional import (
    DirectionalNoise,
    directional_noise,
    ellipsoid_scales,
    minimised_cost,
    principal_weights,
)
from keras_dp_ext.analysis.distortion_rate import (
    DistortionRate,
    distortion_rate_bound,
    gaussian_entropy,
    rate_distortion_bound,
)
from keras_dp_ext.analysis.mutual_information import mutual_information_bound
from keras_dp_ext.analysis.plot import (
    distortion_curves,
    plot_distortion,
)
from keras_dp_ext.analysis.published_budget import (
    PublishedBudget,
    published_budget,
)

__all__ = [
    "DirectionalNoise",
    "DistortionRate",
    "PublishedBudget",
    "directional_noise",
    "distortion_curves",
    "distortion_rate_bound",
    "ellipsoid_scales",
    "gaussian_entropy",
    "minimised_cost",
    "mutual_information_bound",
    "plot_distortion",
    "principal_weights",
    "published_budget",
    "rate_distortion_bound",
]
