"""REFINE stages: post-processing of what has been noised, at no privacy cost."""

from keras_dp_ext.refining.base import Refinement, get
from keras_dp_ext.refining.denoising import DISTANCES, Denoising
from keras_dp_ext.refining.ks_denoising import KSDenoising

__all__ = ["DISTANCES", "Denoising", "KSDenoising", "Refinement", "get"]
