"""REFINE stages: post-processing of what has been noised, at no privacy cost."""

from keras_dp_ext.refining.denoising import DISTANCES, Denoising

__all__ = ["DISTANCES", "Denoising"]
