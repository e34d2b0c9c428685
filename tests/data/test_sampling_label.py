"""The label follows a pipeline as far as it stays true, and no further."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.accounting.sampling import Poisson, Shuffled, WithReplacement
from keras_dp_ext.data import (
    poisson_batches,
    sampling_of,
    shuffled_batches,
    with_replacement_batches,
)

X = np.arange(100, dtype=np.float32)
Y = np.zeros([100], np.int32)


def test_each_sampler_names_its_scheme():
    assert isinstance(poisson_batches(X, Y, 10).dp_sampling.sampling, Poisson)
    assert with_replacement_batches(X, Y, 10).dp_sampling.sampling == WithReplacement(
        batch_size=10, num_examples=100
    )
    assert shuffled_batches(X, Y, 10).dp_sampling.sampling == Shuffled(
        steps_per_epoch=11, rate=0.1
    )


@pytest.mark.parametrize(
    "transform",
    [
        lambda lots: lots,
        lambda lots: lots.map(lambda x, y, w: (x / 255, y, w)),
        lambda lots: lots.map(lambda x, y, w: (x, y, w), num_parallel_calls=2),
        lambda lots: lots.prefetch(2).repeat(3).take(5),
        lambda lots: lots.skip(1).with_options(tf.data.Options()),
    ],
)
def test_the_label_survives_what_leaves_lots_alone(transform):
    label = sampling_of(transform(poisson_batches(X, Y, 10)))
    assert label.expected_batch_size == 10
    assert label.num_examples == 100
    assert label.sampling.rate == 0.1
    assert label.steps_per_epoch == 10


@pytest.mark.parametrize(
    "transform",
    [
        lambda lots: lots.cache(),  # Repeats the lots of the first epoch.
        lambda lots: lots.unbatch().batch(5),
        lambda lots: lots.batch(2).map(lambda x, y, w: (x[0], y[0], w[0])),
        lambda lots: lots.filter(lambda x, y, w: tf.reduce_sum(x) > 100),
        lambda lots: lots.concatenate(lots),
        lambda lots: lots.rebatch(7),
        lambda lots: lots.flat_map(lambda *lot: tf.data.Dataset.from_tensors(lot)),
        lambda lots: tf.data.Dataset.zip(lots, lots).map(lambda a, b: a),
        # Every example twice: twice the sensitivity.
        lambda lots: lots.map(
            lambda x, y, w: (
                tf.concat([x, -x], 0),
                tf.concat([y, y], 0),
                tf.concat([w, w], 0),
            )
        ),
    ],
)
def test_the_label_is_lost_where_lots_may_change(transform):
    assert sampling_of(transform(poisson_batches(X, Y, 10))) is None


@pytest.mark.parametrize(
    "transform", [lambda lots: lots.skip(1), lambda lots: lots.take(3).repeat()]
)
def test_lots_over_several_batches_must_stay_whole(transform):
    """Parts of two lots in one update could hold the same example twice."""
    lots = poisson_batches(X, Y, 10, accumulation_steps=2)
    assert sampling_of(lots.prefetch(1)).accumulation_steps == 2
    assert sampling_of(transform(lots)) is None


def test_unlabelled_data_has_no_label():
    assert sampling_of(tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)) is None
    assert sampling_of(X) is None
    assert sampling_of(None) is None


@pytest.mark.parametrize("sampler", [poisson_batches, shuffled_batches])
def test_dropping_the_mask_is_an_error(sampler):
    """Padding would count as examples, and an example replace one: sensitivity 2."""
    lots = sampler(X, Y, 10).map(lambda x, y, w: (x, y))
    with pytest.raises(ValueError, match="sample weight marks the padding"):
        sampling_of(lots)


def test_draws_with_replacement_need_no_mask():
    lots = with_replacement_batches(X, Y, 10)
    assert len(lots.element_spec) == 2
    assert sampling_of(lots).sampling.batch_size == 10
