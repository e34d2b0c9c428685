"""Data: sampled batches that carry their privacy label, data sets, private PCA."""

from keras_dp_ext.data.layers.each_view import EachView
from keras_dp_ext.data.layers.private_normalization import PrivateNormalization
from keras_dp_ext.data.layers.private_pca import PrivatePCA
from keras_dp_ext.data.layers.scattering import Scattering
from keras_dp_ext.data.sampling.augmented import augmented
from keras_dp_ext.data.sampling.balls_in_bins_batches import balls_in_bins_batches
from keras_dp_ext.data.sampling.capacity import overflow_delta, smallest_capacity
from keras_dp_ext.data.sampling.cyclic_poisson_batches import cyclic_poisson_batches
from keras_dp_ext.data.sampling.fixed_order_batches import fixed_order_batches
from keras_dp_ext.data.sampling.label import SamplingLabel, sampling_of
from keras_dp_ext.data.sampling.poisson_batches import poisson_batches
from keras_dp_ext.data.sampling.shuffled_batches import shuffled_batches
from keras_dp_ext.data.sampling.with_replacement_batches import with_replacement_batches
from keras_dp_ext.data.sets.data_set import DataSet
from keras_dp_ext.data.sets.load import NAMES, load

__all__ = [
    "NAMES",
    "DataSet",
    "EachView",
    "PrivateNormalization",
    "PrivatePCA",
    "SamplingLabel",
    "Scattering",
    "augmented",
    "balls_in_bins_batches",
    "cyclic_poisson_batches",
    "fixed_order_batches",
    "load",
    "overflow_delta",
    "poisson_batches",
    "sampling_of",
    "shuffled_batches",
    "smallest_capacity",
    "with_replacement_batches",
]
