"""The gradient engine: losses and variables in, lazy per-example gradients out."""

from keras_dp_ext.gradients.base import MaterializedGradients, PerExampleGradients
from keras_dp_ext.gradients.chunks import chunk_bytes, set_chunk_bytes
from keras_dp_ext.gradients.contributions import Contribution
from keras_dp_ext.gradients.engine import per_example_gradients
from keras_dp_ext.gradients.lazy_gradients import LazyGradients
from keras_dp_ext.gradients.losses import SeparatedLoss, separate
from keras_dp_ext.gradients.registry import register_rule

__all__ = [
    "Contribution",
    "LazyGradients",
    "MaterializedGradients",
    "PerExampleGradients",
    "SeparatedLoss",
    "chunk_bytes",
    "per_example_gradients",
    "register_rule",
    "separate",
    "set_chunk_bytes",
]
