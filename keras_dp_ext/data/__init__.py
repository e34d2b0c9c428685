"""Data: sampled batches that carry their privacy label, data sets, private PCA."""

from keras_dp_ext.data.capacity import overflow_delta, smallest_capacity
from keras_dp_ext.data.data_set import DataSet
from keras_dp_ext.data.load import NAMES, load
from keras_dp_ext.data.poisson_batches import poisson_batches
from keras_dp_ext.data.private_pca import PrivatePCA
from keras_dp_ext.data.sampling_label import SamplingLabel, sampling_of
from keras_dp_ext.data.scattering import Scattering
from keras_dp_ext.data.shuffled_batches import shuffled_batches
from keras_dp_ext.data.with_replacement_batches import with_replacement_batches

__all__ = [
    "NAMES",
    "DataSet",
    "PrivatePCA",
    "SamplingLabel",
    "Scattering",
    "load",
    "overflow_delta",
    "poisson_batches",
    "sampling_of",
    "shuffled_batches",
    "smallest_capacity",
    "with_replacement_batches",
]
