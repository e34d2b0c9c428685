"""Mechanisms: each bounds, noises and refines, and says what it costs."""

from keras_dp_ext.mechanisms.adaclip import AdaClip
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.mechanisms.clipping import Automatic, PerLayer
from keras_dp_ext.mechanisms.composed import Composed
from keras_dp_ext.mechanisms.correlated import BLT, DPFTRL, BandInv, BandMF
from keras_dp_ext.mechanisms.directional import Directional
from keras_dp_ext.mechanisms.dpsgd import DPSGD
from keras_dp_ext.mechanisms.encoding import Encoded
from keras_dp_ext.mechanisms.quantile import Quantile
from keras_dp_ext.mechanisms.tanh import Tanh

__all__ = [
    "BLT",
    "DPFTRL",
    "DPSGD",
    "AdaClip",
    "Automatic",
    "BandInv",
    "BandMF",
    "Composed",
    "Directional",
    "Encoded",
    "Mechanism",
    "PerLayer",
    "Quantile",
    "Tanh",
]
