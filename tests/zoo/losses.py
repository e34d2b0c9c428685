"""Losses and layers in which examples meet, and their honest relatives."""

import keras
import numpy as np
import tensorflow as tf

from tests.zoo import kit
from tests.zoo.kit import MIXES, case


def _through(function):
    """A model with `function` between its inputs and its only weights."""
    return kit.functional(
        lambda i: keras.layers.Dense(1)(
            keras.layers.Lambda(function, output_shape=tuple(i.shape[1:]))(i)
        )
    )


def _behind(function):
    """A model with `function` behind its weights."""
    return kit.functional(
        lambda i: keras.layers.Lambda(function, output_shape=(1,))(
            keras.layers.Dense(1)(i)
        )
    )


@case("refused", "ambda", wrong="all rows depend on the batch's mean")
def batch_statistics(x, y):
    return kit.train(
        _through(lambda v: v - tf.reduce_mean(v, axis=0, keepdims=True)), x, y
    )


@tf.custom_gradient
def _clipped_backwards(v):
    return tf.identity(v), lambda dy: tf.clip_by_norm(dy, 100.0)


@case("refused", "clip_by_norm", wrong="one huge gradient shrinks all others")
def gradient_clipped_over_the_batch(x, y):
    return kit.train(_behind(lambda v: _clipped_backwards(v)), x, y)


@case("refused", MIXES, wrong="one huge example erases all others")
def zero_all_if_any_is_huge(x, y):
    return kit.train(
        _through(
            lambda v: tf.where(tf.reduce_any(tf.abs(v) > 1e3), tf.zeros_like(v), v)
        ),
        x,
        y,
    )


@case("refused", MIXES, wrong="one NaN erases all others")
def zero_all_if_any_is_nan(x, y):
    return kit.train(
        _through(
            lambda v: tf.where(tf.reduce_any(tf.math.is_nan(v)), tf.zeros_like(v), v)
        ),
        x,
        y,
    )


@case("refused", MIXES, wrong="the mean decides over all rows")
def branch_on_the_mean(x, y):
    return kit.train(
        _through(
            lambda v: tf.cond(tf.reduce_mean(v) > 1000.0, lambda: 2.0 * v, lambda: v)
        ),
        x,
        y,
    )


class RarelyMixes(keras.layers.Layer):
    """Mixes three batches in a hundred."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs):
        rare = keras.random.uniform([], seed=self.seeds) < 0.03
        return tf.where(rare, inputs + tf.reduce_mean(inputs, axis=0), inputs)


@case("refused", "rarely_mixes", wrong="three batches in a hundred")
def mixes_rarely(x, y):
    return kit.train(
        kit.functional(lambda i: keras.layers.Dense(1)(RarelyMixes()(i))), x, y
    )


@case("refused", "mix", wrong="an example is in two rows")
def mixup_inside_the_model(x, y):
    class MixUp(keras.layers.Layer):
        def call(self, inputs):
            return 0.7 * inputs + 0.3 * tf.reverse(inputs, axis=[0])

    return kit.train(kit.functional(lambda i: keras.layers.Dense(1)(MixUp()(i))), x, y)


def _loss(function):
    """A model whose `compute_loss` is `function(y, y_pred, weight)`."""

    class Custom(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return function(y, y_pred, sample_weight)

    inputs = keras.Input([kit.FEATURES])
    return Custom(inputs, keras.layers.Dense(1)(inputs))


def _squares(y, y_pred):
    return keras.losses.mean_squared_error(y, y_pred)


@case("within", wrong="one weight changes all others' share", examples=["opposed"])
def weights_normalised_by_their_sum(x, y):
    def loss(y, y_pred, weight):
        return tf.reduce_sum(weight * _squares(y, y_pred)) / tf.reduce_sum(weight)

    return kit.train(_loss(loss), x, y, loss=None)


@case("refused", MIXES, wrong="every other example is a negative of this one")
def contrastive_with_negatives_of_the_batch(x, y):
    def loss(y, y_pred, weight):
        logits = y_pred @ tf.transpose(y)
        labels = tf.range(tf.shape(y)[0])
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True
        )
        return tf.reduce_mean(weight * losses)

    return kit.train(_loss(loss), x, y, loss=None)


@case("within", wrong="one length rescales all others", examples=["opposed"])
def sequence_mask_over_the_batch(x, y):
    def loss(y, y_pred, weight):
        mask = tf.cast(y > 0, tf.float32)[:, 0]
        return tf.reduce_sum(_squares(y, y_pred) * mask * weight) / tf.reduce_sum(mask)

    return kit.train(_loss(loss), x, y, loss=None)


@case("within", wrong="a mask of its own sequence is taken for one of the batch")
def sequence_mask_of_each_example(x, y):
    def loss(y, y_pred, weight):
        steps = tf.square(y_pred - y * tf.constant([[1.0, 2.0, 3.0]]))
        mask = tf.cast(steps > 0.01, tf.float32)
        losses = tf.reduce_sum(steps * mask, axis=1)
        return tf.reduce_mean(weight * losses / (1.0 + tf.reduce_sum(mask, axis=1)))

    return kit.train(_loss(loss), x, y, loss=None)


@case(
    "refused",
    "valid steps|mask|batch",
    wrong="masked steps of the whole batch",
    data=kit.tokens,
)
def keras_masking_of_sequences(x, y):
    targets = np.repeat(y, 6, axis=1)[..., None]
    model = keras.Sequential(
        [
            keras.Input([6], dtype="int32"),
            keras.layers.Embedding(10, 3, mask_zero=True),
            keras.layers.LSTM(1, return_sequences=True),
        ]
    )
    model.compile(kit.private(), "mse")
    return kit.fit(model, x, targets, batch_size=11)


@case("refused", MIXES, wrong="the hardest examples push the others out")
def hardest_examples_of_the_batch(x, y):
    def loss(y, y_pred, weight):
        hardest, _ = tf.math.top_k(weight * _squares(y, y_pred), k=4)
        return tf.reduce_mean(hardest)

    return kit.train(_loss(loss), x, y, loss=None)


@case("refused", MIXES, wrong="gradients are scaled by the others' losses")
def loss_over_its_own_mean(x, y):
    def loss(y, y_pred, weight):
        losses = weight * _squares(y, y_pred)
        return tf.reduce_mean(losses / tf.stop_gradient(tf.reduce_mean(losses)))

    return kit.train(_loss(loss), x, y, loss=None)


@case("refused", MIXES, wrong="the most frequent label of the batch counts less")
def weights_by_label_frequency_in_the_batch(x, y):
    def loss(y, y_pred, weight):
        positive = tf.cast(y[:, 0] > 0, tf.float32)
        share = tf.reduce_mean(positive)
        balanced = positive / (share + 0.1) + (1 - positive) / (1.1 - share)
        return tf.reduce_mean(weight * balanced * _squares(y, y_pred))

    return kit.train(_loss(loss), x, y, loss=None)


@case("refused", MIXES, wrong="centres of classes are those of the batch")
def centres_of_the_batch(x, y):
    def loss(y, y_pred, weight):
        group = tf.cast(y[:, 0] > 0, tf.int32)
        centres = tf.math.unsorted_segment_mean(y_pred, group, 2)
        away = tf.square(y_pred - tf.gather(centres, group))[:, 0]
        return tf.reduce_mean(weight * (_squares(y, y_pred) + away))

    return kit.train(_loss(loss), x, y, loss=None)


@case("refused", MIXES, wrong="each row is the sum of all before it")
def cumulative_sum_over_the_batch(x, y):
    return kit.train(_through(lambda v: tf.cumsum(v, axis=0)), x, y)


@case("refused", MIXES, wrong="two neighbours in the batch are normalised as one")
def pairs_of_rows(x, y):
    def pairs(v):
        rows = tf.reshape(v, [-1, 2 * kit.FEATURES])
        return tf.reshape(tf.nn.l2_normalize(rows, axis=1), [-1, kit.FEATURES])

    return kit.train(_through(pairs), x, y)


@case("refused", MIXES, wrong="rows swap places at random")
def shuffled_inside_the_model(x, y):
    return kit.train(_through(lambda v: 0.5 * (v + tf.random.shuffle(v))), x, y)


@case("refused", MIXES, wrong="attention over the batch")
def attention_over_the_batch(x, y):
    def attend(v):
        return tf.nn.softmax(v @ tf.transpose(v)) @ v

    return kit.train(_through(attend), x, y)


@case("within", wrong="a gradient of one's own is taken for mixing")
def gradient_reversal(x, y):
    @tf.custom_gradient
    def reverse(v):
        return tf.identity(v), lambda dy: -dy

    return kit.train(_behind(lambda v: reverse(v)), x, y)


@case("within", wrong="a loop over rows is taken for mixing", examples=["huge"])
def map_over_rows(x, y):
    return kit.train(
        _through(lambda v: tf.vectorized_map(lambda row: row / 2.0, v)), x, y
    )


@case("within", wrong="the alignment of one example gets into another's table")
def ctc(x, y):
    """Its tables are filled by row numbers."""
    labels = np.tile(np.array([[1, 2]], "int32"), [len(y), 1])
    model = keras.Sequential(
        [
            keras.Input([kit.FEATURES]),
            keras.layers.Dense(18),
            keras.layers.Reshape([6, 3]),
        ]
    )
    model.compile(kit.private(), loss=keras.losses.CTC())
    return kit.fit(model, kit.lots(x, labels))
