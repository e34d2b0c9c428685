"""Functions of `map` on lots: every row by itself, for all data, or no label."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.data import poisson_batches, sampling_of

EXAMPLES = 40
X = np.random.default_rng(0).normal(size=[EXAMPLES, 6]).astype(np.float32)
IMAGES = np.zeros([EXAMPLES, 8, 8, 3], np.uint8)
TEXTS = np.array(["some words", "word"] * (EXAMPLES // 2))
Y = np.zeros([EXAMPLES], np.int32)


def _records():
    def record(row):
        value = tf.train.Feature(float_list=tf.train.FloatList(value=row))
        feature = tf.train.Features(feature={"x": value})
        return tf.train.Example(features=feature).SerializeToString()

    return np.array([record(row) for row in X], object)


def _parsed(records):
    feature = tf.io.FixedLenFeature([6], tf.float32)
    return tf.io.parse_example(records, {"x": feature})["x"]


def _min_max(x):
    low, high = tf.reduce_min(x), tf.reduce_max(x)
    return tf.math.divide_no_nan(x - low, high - low)


def _median(x):
    return x - tf.sort(x, axis=0)[tf.shape(x)[0] // 2]


def _noisy(x):
    return 0.5 * x + 0.5 * tf.reverse(x, [0]) + tf.random.normal(tf.shape(x))


def _fails_on_made_up_rows(x):
    with tf.control_dependencies([tf.debugging.assert_greater(tf.norm(x), 1e30)]):
        return x - tf.reduce_mean(x, axis=0)


def _if_not_finite(x):
    is_fine = tf.reduce_all(tf.math.is_finite(x))
    return tf.cond(is_fine, lambda: x, lambda: tf.zeros_like(x))


def _rarely(x):
    is_mixed = tf.random.uniform([]) < 0.01
    return tf.where(is_mixed, tf.roll(x, 1, axis=0), x)


def _in_a_loop(x):
    total = tf.zeros_like(x[0])
    for row in tf.unstack(x):
        total += row
    return x + 1e-9 * total


def _batch_norm(x):
    return keras.layers.BatchNormalization(dtype="float32")(x, training=True)


MIXING = {
    "min-max": _min_max,
    "divided by the maximum": lambda x: tf.math.divide_no_nan(x, tf.reduce_max(x)),
    "median": _median,
    "noise": _noisy,
    "failing assert": _fails_on_made_up_rows,
    "standardised": lambda x: (x - tf.reduce_mean(x)) / (1.0 + tf.math.reduce_std(x)),
    "whitened": lambda x: x @ tf.linalg.inv(tf.transpose(x) @ x + tf.eye(6)),
    "clipped to the batch": lambda x: tf.clip_by_value(x, -1.0, tf.reduce_max(x) + 9.0),
    "clipped by global norm": lambda x: tf.clip_by_norm(x, 1e6),
    "not finite": _if_not_finite,
    "rarely": _rarely,
    "tiny mean": lambda x: x + 1e-9 * tf.reduce_mean(x, axis=0),
    "row of another": lambda x: tf.where(x > 1e5, x[:1], x),
    "loop": _in_a_loop,
    "rank": lambda x: tf.cast(tf.argsort(tf.argsort(x, axis=0), axis=0), tf.float32),
    "python": lambda x: tf.ensure_shape(
        tf.numpy_function(lambda x: x - x.mean(0), [x], tf.float32), [None, 6]
    ),
    "scan": lambda x: tf.scan(lambda total, row: total + row, x),
}


@pytest.mark.parametrize("name", MIXING)
def test_mixing_is_refused_whatever_made_up_rows_show(name):
    lots = poisson_batches(X, Y, 4)
    size = lots.element_spec[0].shape[0]

    def function(x, y, w):
        return tf.ensure_shape(MIXING[name](x), [size, 6]), y, w

    with pytest.raises(ValueError, match=r"(?s)depend on each other.*op `.*axis"):
        sampling_of(lots.map(function).prefetch(1))


def test_mixing_behind_a_parser_is_refused():
    lots = poisson_batches(_records(), Y, 4)
    honest = lots.map(lambda x, y, w: (_parsed(x), y, w))
    assert sampling_of(honest) is not None
    with pytest.raises(ValueError, match="depend on each other"):
        sampling_of(honest.map(lambda x, y, w: (x - tf.reduce_mean(x, 0), y, w)))


def _flip_each(images):
    seeds = tf.random.uniform([tf.shape(images)[0], 2], 0, 2**30, tf.int32)
    return tf.map_fn(
        lambda pair: tf.image.stateless_random_flip_left_right(pair[0], pair[1]),
        (images, seeds),
        fn_output_signature=images.dtype,
    )


def _augmented(images):
    images = tf.image.convert_image_dtype(images, tf.float32)
    images = tf.image.resize(tf.image.resize_with_crop_or_pad(images, 12, 12), [8, 8])
    images = tf.image.random_flip_left_right(tf.image.random_brightness(images, 0.1))
    images = tf.image.random_contrast(images, 0.8, 1.2)
    return tf.image.per_image_standardization(images)


HONEST_IMAGES = {
    "scaled": lambda x: tf.cast(x, tf.float32) / 127.5 - 1.0,
    "augmented": _augmented,
    "flipped": _flip_each,
    "grey": lambda x: tf.image.rgb_to_grayscale(x),
    "cropped": lambda x: tf.image.random_crop(x, [x.shape[0], 6, 6, 3]),
    "rotated": lambda x: tf.image.rot90(x),
    "patches": lambda x: tf.image.extract_patches(
        x, [1, 4, 4, 1], [1, 4, 4, 1], [1, 1, 1, 1], "VALID"
    ),
    "vectorized": lambda x: tf.vectorized_map(
        lambda row: tf.cast(row, tf.float32) - tf.reduce_mean(tf.cast(row, tf.float32)),
        x,
    ),
    "Keras layers": keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255),
            keras.layers.CenterCrop(6, 6),
            keras.layers.Resizing(4, 4),
        ]
    ),
}


@pytest.mark.parametrize("name", HONEST_IMAGES)
def test_images_may_be_transformed_one_by_one(name):
    lots = poisson_batches(IMAGES, Y, 4)
    lots = lots.map(lambda x, y, w: (HONEST_IMAGES[name](x), tf.one_hot(y, 3), w))
    assert sampling_of(lots).sampling.rate == 0.1


HONEST_TEXTS = {
    "tokens": keras.layers.TextVectorization(
        vocabulary=["some", "word"], output_sequence_length=4
    ),
    "bag of words": keras.layers.TextVectorization(
        vocabulary=["some", "word"], output_mode="multi_hot"
    ),
    "lookup": keras.layers.StringLookup(vocabulary=["some words"]),
    "hashed": lambda x: tf.strings.to_hash_bucket_fast(tf.strings.lower(x), 10),
    "lengths": tf.strings.length,
}


@pytest.mark.parametrize("name", HONEST_TEXTS)
def test_texts_may_be_transformed_one_by_one(name):
    lots = poisson_batches(TEXTS, Y, 4)
    lots = lots.map(lambda x, y, w: ({"text": HONEST_TEXTS[name](x)}, y, w))
    assert sampling_of(lots).sampling.rate == 0.1


def test_texts_padded_to_the_longest_of_a_lot_are_refused():
    layer = keras.layers.TextVectorization(vocabulary=["some", "word"])
    lots = poisson_batches(TEXTS, Y, 4).map(lambda x, y, w: (layer(x), y, w))
    with pytest.raises(ValueError, match="longest example"):
        sampling_of(lots)


def test_an_op_of_an_unknown_type_is_tried(monkeypatch):
    """`Betainc` is known; here it stands for an op that is not."""
    from keras_dp_ext.verification.row_analysis import registry

    monkeypatch.delitem(registry._TRANSFERS, "Betainc")

    def unknown(x):
        x = 0.1 + tf.abs(x)
        return tf.math.betainc(x, x, tf.minimum(x, 0.9))

    lots = poisson_batches(X, Y, 4)
    assert sampling_of(lots.map(lambda x, y, w: (unknown(x), y, w))) is not None
    with pytest.raises(ValueError, match="depend on each other"):
        sampling_of(lots.map(lambda x, y, w: (x * tf.reduce_max(unknown(x)), y, w)))
    with pytest.raises(ValueError, match=r"(?s)Betainc.*made-up rows"):
        sampling_of(
            lots.map(lambda x, y, w: (unknown(x) + tf.random.normal(x.shape), y, w))
        )


def test_fit_refuses_lots_that_were_mixed():
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(), "mse")
    lots = poisson_batches(X, Y, 4).map(lambda x, y, w: (_min_max(x), y, w))
    with pytest.raises(ValueError, match=r"(?s)depend on each other.*reduces along"):
        model.fit(
            lots, verbose=0, callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-5)]
        )
