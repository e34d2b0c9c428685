"""Noise that is correlated from release to release, so that sums of it stay small."""

from keras_dp_ext.noise.correlated.banded import Banded
from keras_dp_ext.noise.correlated.banded_inverse import BandedInverse
from keras_dp_ext.noise.correlated.base import CorrelatedNoise
from keras_dp_ext.noise.correlated.buffered_toeplitz import BufferedToeplitz
from keras_dp_ext.noise.correlated.tree import TreeAggregation

__all__ = [
    "Banded",
    "BandedInverse",
    "BufferedToeplitz",
    "CorrelatedNoise",
    "TreeAggregation",
]
