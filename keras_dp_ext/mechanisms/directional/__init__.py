"""Directional noise: proven, and as printed."""

from keras_dp_ext.mechanisms.directional.directional import Directional

__all__ = ["Directional"]
