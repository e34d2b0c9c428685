"""Convolutions of one to three dimensions, depthwise and transposed ones."""

from keras_dp_ext.gradients.rules.convolution import rules

__all__ = ["rules"]
