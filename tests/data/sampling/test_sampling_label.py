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


@pytest.mark.parametrize(
    "transform, length",
    [
        (lambda lots: lots.repeat(2), 11),
        (lambda lots: lots.skip(1), 10),
        (lambda lots: lots.take(3).repeat(), 3),
        (lambda lots: lots.repeat(2).take(15), 1),
    ],
)
def test_shuffled_passes_that_are_cut_are_as_short_as_that(transform, length):
    """Of three lots out of eleven each pass may hold the same example again."""
    lots = shuffled_batches(X, Y, 10)
    assert sampling_of(transform(lots)).sampling.steps_per_epoch == length


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, w: (0.7 * x + 0.3 * tf.roll(x, 1, 0), y, w),
        lambda x, y, w: (x - tf.reduce_mean(x, axis=0), y, w),
        lambda x, y, w: (x, y, tf.math.divide_no_nan(w, tf.reduce_sum(w))),
        lambda x, y, w: (0.7 * x + 0.3 * tf.random.shuffle(x), y, w),
        lambda x, y, w: (x, tf.reverse(y, [0]), w),
    ],
    ids=["mixup", "centring", "realised size", "random mixup", "labels of others"],
)
def test_examples_must_not_be_mixed(function):
    """One example would move the gradients of several rows."""
    lots = poisson_batches(X, Y, 10).prefetch(1).map(function)
    with pytest.raises(ValueError, match="depend on each other"):
        sampling_of(lots.prefetch(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, w: (x, y, tf.gather([1.0, 5.0], y)),
        lambda x, y, w: (x, y, w / tf.reduce_sum(w)),
        lambda x, y, w: (x + tf.random.normal(tf.shape(x)), y, tf.ones_like(w)),
    ],
)
def test_padding_must_not_get_a_weight(function):
    """Class weights that replace the mask turn padding into examples."""
    with pytest.raises(ValueError, match="gives padding a sample weight"):
        sampling_of(poisson_batches(X, Y, 10).map(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, w: (x + tf.random.normal(tf.shape(x)), y, w),
        lambda x, y, w: (tf.cast(x, tf.float16) / 255 - 0.5, tf.one_hot(y, 2), w),
        lambda x, y, w: (x, y, w * tf.gather([1.0, 5.0], y)),
        lambda x, y, w: (tf.map_fn(tf.square, x), y, w),
        lambda x, y, w: (tf.debugging.check_numerics(1 / x, "x"), y, w),
    ],
    ids=["noise", "scaling", "class weights", "row by row", "fails on made-up rows"],
)
def test_examples_may_be_transformed_one_by_one(function):
    lots = poisson_batches(X, Y, 10).map(function).map(lambda *lot: lot)
    assert sampling_of(lots).sampling.rate == 0.1


def test_lots_without_targets_and_with_ragged_rows_are_checked():
    texts = np.array(["some", "words"] * 50)
    lots = poisson_batches({"text": texts, "x": X}, batch_size=10)
    lots = lots.map(
        lambda x, y, w: ((tf.strings.bytes_split(x["text"]), x["x"]), None, w)
    )
    assert sampling_of(lots).sampling.rate == 0.1
    with pytest.raises(ValueError, match="depend on each other"):
        sampling_of(
            lots.map(lambda x, y, w: ((x[0], x[1] - tf.reduce_mean(x[1])), y, w))
        )


def test_rows_of_text_are_checked_too():
    texts = np.array(["some", "words"] * 50)
    lots = poisson_batches(texts, Y, 10)
    assert sampling_of(lots.map(lambda x, y, w: (tf.strings.length(x), y, w)))
    with pytest.raises(ValueError, match="depend on each other"):
        sampling_of(lots.map(lambda x, y, w: (tf.reverse(x, [0]), y, w)))


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
