"""Attacks that nobody has asked for: of the same kinds, by other means."""

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp
from tests.zoo import kit
from tests.zoo.kit import MIXES, case


def _through(function):
    return kit.functional(
        lambda i: keras.layers.Dense(1)(
            keras.layers.Lambda(function, output_shape=tuple(i.shape[1:]))(i)
        )
    )


def _custom(kind):
    inputs = keras.Input([kit.FEATURES])
    return kind(inputs, keras.layers.Dense(1)(inputs))


@case("refused", MIXES, wrong="the lot's size is a feature of all rows")
def weights_of_the_lot_as_a_feature(x, y):
    class Sees(keras.Model):
        def train_step(self, data):
            x, y, weight = data
            return super().train_step((x + tf.reduce_sum(weight), y, weight))

    return kit.train(_custom(Sees), x, y)


@case("refused", MIXES, wrong="the step mixes before the model sees the rows")
def train_step_that_centres_the_lot(x, y):
    class Centres(keras.Model):
        def train_step(self, data):
            x, y, weight = data
            return super().train_step((x - tf.reduce_mean(x, axis=0), y, weight))

    return kit.train(_custom(Centres), x, y)


@case("refused", MIXES, wrong="one weight takes away from the others")
def weights_from_a_softmax_over_the_lot(x, y):
    class Attends(keras.Model):
        def train_step(self, data):
            x, y, weight = data
            share = tf.nn.softmax(tf.reduce_sum(x, axis=1), axis=0)
            return super().train_step((x, y, weight * share))

    return kit.train(_custom(Attends), x, y)


@case("refused", MIXES, wrong="a huge row switches the others off")
def rank_of_a_row_in_its_lot(x, y):
    return kit.train(
        _through(
            lambda v: v * tf.cast(tf.argsort(tf.argsort(v, axis=0), axis=0), tf.float32)
        ),
        x,
        y,
    )


@case("refused", MIXES, wrong="rows that are alike share a number")
def duplicates_counted_in_the_lot(x, y):
    def unique(v):
        _, index, count = tf.unique_with_counts(tf.round(v[:, 0]))
        return v * tf.cast(tf.gather(count, index), tf.float32)[:, None]

    return kit.train(_through(unique), x, y)


@case("refused", MIXES, wrong="the number of loops depends on the greatest row")
def loop_until_the_lot_is_small(x, y):
    def shrink(v):
        return tf.while_loop(
            lambda v: tf.reduce_max(tf.abs(v)) > 5.0,
            lambda v: [v / 2.0],
            [v],
            maximum_iterations=40,
        )[0]

    return kit.train(_through(shrink), x, y)


@case("refused", MIXES, wrong="the gradient of the batch is normalised")
def gradient_normalised_over_the_lot(x, y):
    @tf.custom_gradient
    def normalise(v):
        return tf.identity(v), lambda dy: dy / (1e-3 + tf.norm(dy))

    model = kit.functional(
        lambda i: keras.layers.Lambda(lambda v: normalise(v), output_shape=(1,))(
            keras.layers.Dense(1)(i)
        )
    )
    return kit.train(model, x, y)


@case("refused", MIXES, wrong="the greatest number of the lot sets the scale")
def quantised_by_the_range_of_the_lot(x, y):
    def quantise(v):
        return tf.quantization.fake_quant_with_min_max_vars(
            v, tf.reduce_min(v), tf.reduce_max(v)
        )

    return kit.train(_through(quantise), x, y)


@case("refused", MIXES, wrong="a norm over the batch, hidden in a convolution")
def convolution_along_the_batch(x, y):
    def convolve(v):
        kernel = tf.ones([3, kit.FEATURES, kit.FEATURES]) / 9.0
        return tf.nn.conv1d(v[tf.newaxis], kernel, 1, "SAME")[0]

    return kit.train(_through(convolve), x, y)


@case("refused", MIXES, wrong="the spectral norm of the lot")
def singular_values_of_the_lot(x, y):
    return kit.train(
        _through(lambda v: v / (1.0 + tf.linalg.svd(v, compute_uv=False)[0])), x, y
    )


@case("refused", MIXES, wrong="the determinant of the lot's covariance")
def whitened_by_the_lot(x, y):
    def whiten(v):
        covariance = tf.transpose(v) @ v + tf.eye(kit.FEATURES)
        return v @ tf.linalg.inv(covariance)

    return kit.train(_through(whiten), x, y)


@case("refused", MIXES, wrong="the first row of the lot is everybody's reference")
def relative_to_the_first_row(x, y):
    return kit.train(_through(lambda v: v - v[:1]), x, y)


@case("refused", MIXES, wrong="the batch becomes features and back")
def transposed_layer_normalization(x, y):
    def across(v):
        columns = tf.transpose(v)
        mean, variance = tf.nn.moments(columns, axes=[1], keepdims=True)
        return tf.transpose((columns - mean) * tf.math.rsqrt(variance + 1e-3))

    return kit.train(_through(across), x, y)


@case("refused", MIXES, wrong="text of one length for all, the longest of the lot")
def padded_to_the_longest_of_the_lot(x, y):
    texts = np.array(["a " * (1 + i % 4) for i in range(len(x))])

    class Lengths(keras.layers.Layer):
        def call(self, inputs):
            words = tf.strings.split(inputs).to_tensor("")
            return tf.cast(tf.strings.length(words), tf.float32) + tf.cast(
                tf.shape(words)[1], tf.float32
            )

        def compute_output_shape(self, shape):
            return (shape[0], None)

    inputs = keras.Input([], dtype="string")
    hidden = keras.layers.Lambda(
        lambda v: tf.reduce_sum(v, axis=1, keepdims=True), output_shape=(1,)
    )(Lengths()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    return kit.train(model, texts, y)


@case("refused", "clone|kernel|weight|variable", wrong="a copy learns in the open")
def copy_trained_in_the_open_and_copied_back(x, y):
    class Copies(keras.Model):
        def train_step(self, data):
            logs = super().train_step(data)
            x, y, _ = data
            kernel = self.layers[-1].kernel
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x)))
            kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
            return logs

    return kit.train(_custom(Copies), x, y)


@case("refused", "table|variable", wrong="labels of the data are in a table")
def table_filled_from_the_data(x, y):
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, default_value=0.0, empty_key=-1, deleted_key=-2
    )

    class Remembers(keras.Model):
        def train_step(self, data):
            logs = super().train_step(data)
            table.insert(tf.range(data[0].shape[0], dtype=tf.int64), data[0][:, 0])
            return logs

    return kit.train(_custom(Remembers), x, y)


@case("refused", "variable|noise", wrong="noise that the data has chosen")
def noise_key_from_the_data(x, y):
    """Noise that the data chooses is no noise."""

    class Chooses(keras.Model):
        def train_step(self, data):
            source = self.optimizer._noise_source
            source._key.assign(
                tf.cast(tf.reduce_sum(data[0]), tf.int32) + tf.constant([1, 2])
            )
            return super().train_step(data)

    return kit.train(_custom(Chooses), x, y)


@case("refused", MIXES, wrong="the lot decides which of two heads learns")
def head_chosen_by_the_lot(x, y):
    def choose(v):
        return tf.switch_case(
            tf.cast(tf.reduce_mean(v) > 100.0, tf.int32),
            [lambda: v, lambda: tf.zeros_like(v)],
        )

    return kit.train(_through(choose), x, y)


@case("refused", MIXES, wrong="an example's loss is in its neighbour's row")
def losses_rolled_by_one(x, y):
    class Rolls(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            losses = keras.losses.mean_squared_error(y, y_pred)
            return tf.reduce_mean(sample_weight * tf.roll(losses, 1, axis=0))

    return kit.train(_custom(Rolls), x, y, loss=None)


@case("refused", MIXES, wrong="the mask of padding is that of other rows")
def train_step_that_reverses_the_lot(x, y):
    class Reverses(keras.Model):
        def train_step(self, data):
            return super().train_step(tuple(tf.reverse(v, axis=[0]) for v in data))

    return kit.train(_custom(Reverses), x, y)


@case("within", wrong="a weight given in the step makes padding count")
def train_step_that_gives_padding_a_weight(x, y):
    class Weighs(keras.Model):
        def train_step(self, data):
            x, y, weight = data
            return super().train_step((x, y + 3.0, tf.ones_like(weight)))

    return kit.train(_custom(Weighs), x, y)


@case("refused", MIXES, wrong="the lot in half as many rows, each of two examples")
def train_step_that_averages_pairs(x, y):
    class Pairs(keras.Model):
        def train_step(self, data):
            return super().train_step(tuple((v[::2] + v[1::2]) / 2 for v in data))

    return kit.train(_custom(Pairs), x, y)


@case("refused", MIXES, wrong="each example in two rows of one batch")
def train_step_that_doubles_the_lot(x, y):
    class Doubles(keras.Model):
        def train_step(self, data):
            x, y, weight = data
            return super().train_step(
                (
                    tf.concat([x, -x], axis=0),
                    tf.concat([y, y], axis=0),
                    tf.concat([weight, weight], axis=0),
                )
            )

    return kit.train(_custom(Doubles), x, y)


@case("within", wrong="the place in the lot is taken for another example")
def place_in_the_lot_as_a_feature(x, y):
    def place(v):
        return v + tf.cast(tf.range(tf.shape(v)[0]), tf.float32)[:, None]

    return kit.train(_through(place), x, y)


@case("within", wrong="a gradient inside the loss is left out", examples=["huge"])
def gradient_penalty_of_each_example(x, y):
    class Penalised(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            with tf.GradientTape() as tape:
                tape.watch(x)
                out = self(x)
            slope = tf.norm(tape.gradient(out, x) + 1e-6, axis=1)
            losses = keras.losses.mean_squared_error(y, y_pred)
            return tf.reduce_mean(sample_weight * (losses + tf.square(slope - 1.0)))

    return kit.train(_custom(Penalised), x, y, loss=None)


@case("within", wrong="a temperature that is learnt acts before the clip")
def learnt_scale(x, y):
    class Scale(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=[], initializer="ones", name="scale")

        def call(self, inputs):
            return inputs * tf.exp(self.scale)

    return kit.train(kit.functional(lambda i: Scale()(keras.layers.Dense(1)(i))), x, y)


@case("within", wrong="the same weights twice are clipped twice", examples=["opposed"])
def weights_used_twice(x, y):
    shared = keras.layers.Dense(kit.FEATURES)
    model = kit.functional(lambda i: keras.layers.Dense(1)(shared(shared(i))))
    return kit.train(model, x, y)


@case(
    "found",
    "number of releases",
    wrong="validation data are data, too",
    adjacency="zero-out",
    examples=["huge"],
)
def stopping_by_examples_held_back(x, y):
    """The example is one of those by which `fit` decides when to stop."""
    model = kit.dense()
    model.compile(kit.private(), "mse")
    stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=0)
    data = {"x": np.nan_to_num(x), "y": y}
    model.fit(
        **data,
        validation_split=0.2,
        batch_size=kit.LOT,
        epochs=3,
        verbose=0,
        callbacks=[kit.accountant(), stopping],
    )
    return model


@case("refused", "LossScaleOptimizer", wrong="steps are skipped by the data")
def loss_scaling(x, y):
    optimizer = keras.optimizers.LossScaleOptimizer(kit.private())
    return kit.train(kit.dense(), x, y, optimizer)


@case("refused", "run_eagerly", wrong="nothing is verified in eager mode")
def eager_training(x, y):
    return kit.train(kit.dense(), x, y, run_eagerly=True)


@case("within", wrong="microbatches of a lot with padding", examples=["opposed"])
def microbatches_and_accumulation(x, y):
    model = kit.dense()
    optimizer = kit.private(num_microbatches=4, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    return kit.fit(model, kit.lots(x, y, accumulation_steps=2))


@case(
    "within", wrong="noise that decreases is accounted as the first", examples=["huge"]
)
def noise_schedule(x, y):
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=0.1, denoise=None, noise_schedule={0: 2.0, 2: 1.0}
    )
    return kit.train(kit.dense(), x, y, optimizer)
