"""BOUND stages: what limits the influence of one example on the sum."""

# Only what needs no TensorFlow; the bounds themselves live in their modules.
from keras_dp_ext.bounding.codebook import Codebook
from keras_dp_ext.bounding.empirical import EmpiricalDistribution

__all__ = ["Codebook", "EmpiricalDistribution"]
