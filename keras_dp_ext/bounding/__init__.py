"""BOUND stages: what limits the influence of one example on the sum."""

# None of these imports TensorFlow before it bounds a gradient.
from keras_dp_ext.bounding.base import AdaptiveBound, Bound, get
from keras_dp_ext.bounding.codebook import Codebook
from keras_dp_ext.bounding.ellipsoid_clip import EllipsoidClip
from keras_dp_ext.bounding.empirical import EmpiricalDistribution
from keras_dp_ext.bounding.encoding import Encoding
from keras_dp_ext.bounding.l1_clip import L1Clip
from keras_dp_ext.bounding.l2_clip import L2Clip
from keras_dp_ext.bounding.normalized import Normalized
from keras_dp_ext.bounding.per_layer_clip import PerLayerClip
from keras_dp_ext.bounding.quantile_clip import QuantileClip
from keras_dp_ext.bounding.tanh_filter import TanhFilter
from keras_dp_ext.bounding.vector_codebook import VectorCodebook

__all__ = [
    "AdaptiveBound",
    "Bound",
    "Codebook",
    "EllipsoidClip",
    "EmpiricalDistribution",
    "Encoding",
    "L1Clip",
    "L2Clip",
    "Normalized",
    "PerLayerClip",
    "QuantileClip",
    "TanhFilter",
    "VectorCodebook",
    "get",
]
