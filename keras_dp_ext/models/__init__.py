"""Models: what stands in the way of private training, and a way around it."""

from keras_dp_ext.models.incompatible_layers import IncompatibleLayer, find_incompatible
from keras_dp_ext.models.make_compatible import make_compatible
from keras_dp_ext.models.restore_optimizer import restore_optimizer

__all__ = [
    "IncompatibleLayer",
    "find_incompatible",
    "make_compatible",
    "restore_optimizer",
]
