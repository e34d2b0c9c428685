"""Models: what stands in the way of private training, and a way around it."""

from keras_dp_ext.models.incompatible_layers import IncompatibleLayer, find_incompatible
from keras_dp_ext.models.make_compatible import make_compatible

__all__ = ["IncompatibleLayer", "find_incompatible", "make_compatible"]
