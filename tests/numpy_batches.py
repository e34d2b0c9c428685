"""Batches of a data set as arrays, with every TensorFlow of the range."""

import tensorflow as tf


def numpy_batches(dataset):
    """As `dataset.as_numpy_iterator()`, which in TensorFlow 2.18 has no None."""
    for batch in dataset:
        yield tf.nest.map_structure(
            lambda leaf: None if leaf is None else leaf.numpy(), batch
        )
