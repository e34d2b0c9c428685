"""Microbatches and batches that they do not divide."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

BATCH = 32


def train(x, y=None, **arguments):
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=1.0, **arguments), loss="mse")
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
    model.fit(x, y, None if y is None else BATCH, verbose=0, callbacks=[accountant])
    return model.optimizer


def arrays(size):
    return np.ones([size, 4], "float32"), np.ones([size, 1], "float32")


def test_a_last_batch_that_cannot_be_cut_is_refused_before_the_first_step():
    with pytest.raises(ValueError, match=r"of 4 examples.*epoch has 5 examples.*Leave"):
        train(*arrays(997), num_microbatches=8)


def test_a_last_batch_of_whole_microbatches_trains():
    assert int(train(*arrays(BATCH + 8), num_microbatches=8).releases) == 2


@pytest.mark.parametrize("known", [True, False])
def test_batches_of_tf_data(known):
    rows = tf.data.Dataset.from_tensor_slices(arrays(BATCH + 5))
    if not known:
        rows = rows.filter(lambda x, y: True)
    message = "has 5 examples" if known else "may be smaller"
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(num_microbatches=8), loss="mse")
    with pytest.raises(ValueError, match=message):
        model.fit(rows.batch(BATCH), verbose=0)
    assert int(model.optimizer.releases) == 0
    model.fit(rows.batch(BATCH, drop_remainder=True), verbose=0)
    assert int(model.optimizer.releases) >= 1


def test_as_many_microbatches_as_examples_are_expected_means_one_example_each():
    lots = dp.data.poisson_batches(*arrays(1000), batch_size=250)
    assert lots.element_spec[2].shape[0] > 250
    optimizer = train(lots, num_microbatches=250)
    assert optimizer.privacy_claim() == train(lots).privacy_claim()


def test_other_microbatches_of_poisson_lots_are_explained():
    lots = dp.data.poisson_batches(*arrays(1000), batch_size=250)
    with pytest.raises(ValueError, match=r"250 examples are expected.*Leave"):
        train(lots, num_microbatches=125)


def test_microbatches_of_poisson_lots_with_a_suitable_number_of_rows():
    lots = dp.data.poisson_batches(
        *arrays(1000), batch_size=250, physical_batch_size=375
    )
    optimizer = train(lots, num_microbatches=125)
    # Several examples in a microbatch: the sensitivity doubles.
    assert optimizer.privacy_claim().proven.noise_multiplier == 0.5
