"""Drop-in names for those who come from TensorFlow Privacy.

The signatures are TensorFlow Privacy's: the privacy arguments first, then those of
the Keras optimizer. A loss with `reduction=None` works as it did there, and so does
a loss with any other reduction. What differs is told in docs/migrating.md.

Example:

>>> from keras_dp_ext.tf_privacy import DPKerasSGDOptimizer
>>> optimizer = DPKerasSGDOptimizer(
...     l2_norm_clip=1.0, noise_multiplier=1.1, num_microbatches=250, learning_rate=0.15
... )
>>> optimizer.num_microbatches
250
"""

from keras_dp_ext.tf_privacy.analysis import (
    AccountantType,
    compute_dp_sgd_privacy,
    compute_dp_sgd_privacy_statement,
    compute_noise,
)
from keras_dp_ext.tf_privacy.models import DPModel, DPSequential
from keras_dp_ext.tf_privacy.optimizers import (
    DPKerasAdagradOptimizer,
    DPKerasAdamOptimizer,
    DPKerasSGDOptimizer,
    VectorizedDPKerasAdagradOptimizer,
    VectorizedDPKerasAdamOptimizer,
    VectorizedDPKerasSGDOptimizer,
)

__all__ = [
    "AccountantType",
    "DPKerasAdagradOptimizer",
    "DPKerasAdamOptimizer",
    "DPKerasSGDOptimizer",
    "DPModel",
    "DPSequential",
    "VectorizedDPKerasAdagradOptimizer",
    "VectorizedDPKerasAdamOptimizer",
    "VectorizedDPKerasSGDOptimizer",
    "compute_dp_sgd_privacy",
    "compute_dp_sgd_privacy_statement",
    "compute_noise",
]
