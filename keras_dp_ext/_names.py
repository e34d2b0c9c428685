"""The names that users write, for code that must not import what they stand for.

To import a mechanism, a noise or a sampling takes a second, and `keras-dp --help` has no
second. So names stand here, and here only.
"""

from __future__ import annotations

#: Mechanisms whose noise is drawn anew for each release: the module in
#: `keras_dp_ext.mechanisms`, and the class.
INDEPENDENT_MECHANISMS = {
    "dpsgd": ("dpsgd", "DPSGD"),
    "quantile": ("quantile", "Quantile"),
    "per-layer": ("clipping", "PerLayer"),
    "automatic": ("clipping", "Automatic"),
    "adaclip": ("adaclip", "AdaClip"),
    "encoding": ("encoding", "Encoded"),
    "tanh": ("tanh", "Tanh"),
    "directional": ("directional", "Directional"),
}

#: Mechanisms whose noise depends on that of former releases.
CORRELATED_MECHANISMS = {
    "bandmf": ("correlated", "BandMF"),
    "dpftrl": ("correlated", "DPFTRL"),
    "blt": ("correlated", "BLT"),
    "bandinv": ("correlated", "BandInv"),
}

MECHANISMS = {**INDEPENDENT_MECHANISMS, **CORRELATED_MECHANISMS}

#: The noises of `keras_dp_ext.noise` that are drawn anew for each release.
NOISES = ("gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech")

#: The ways to draw a batch.
SAMPLINGS = (
    "poisson",
    "shuffled",
    "with-replacement",
    "full-batch",
    "balls-in-bins",
    "cyclic-poisson",
    "fixed-order",
)
