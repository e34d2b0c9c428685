"""Losses that are not those of single examples are refused: nothing bounds them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

L = keras.layers
EXAMPLES, VIEWS, FEATURES = 16, 8, 5
REFUSED = "one loss for each example"

static_or_not = pytest.mark.parametrize("static", [False, True])


def data():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, FEATURES)).astype("float32")
    return x, generator.normal(size=(EXAMPLES, 1)).astype("float32")


def make_model():
    return keras.Sequential(
        [keras.Input([FEATURES]), L.Dense(4, activation="tanh"), L.Dense(1)]
    )


def custom_step(losses_of, static, *more):
    """One private step on `losses_of(model, x, y, *more)`."""
    model = make_model()
    before = model.get_weights()
    optimizer = dp.optimizers.DPSGD(expected_batch_size=EXAMPLES)
    values = [tf.constant(value) for value in (*data(), *more)]
    signature = [
        tf.TensorSpec(value.shape if static else [None, *value.shape[1:]], value.dtype)
        for value in values
    ]

    @tf.function(input_signature=signature)
    def step(*values):
        optimizer.minimize(losses_of(model, *values), model.trainable_variables)

    try:
        step(*values)
    finally:
        custom_step.changed = any(
            not np.array_equal(old, new)
            for old, new in zip(before, model.get_weights(), strict=True)
        )


def squared_errors(model, x, y):
    return tf.reduce_mean(tf.square(y - model(x)), axis=-1)


@static_or_not
@pytest.mark.parametrize(
    "views",
    [
        lambda values: tf.repeat(values, VIEWS, axis=0),
        lambda values: tf.tile(values, [VIEWS, 1]),
        lambda values: tf.concat([values] * VIEWS, axis=0),
    ],
    ids=["repeat", "tile", "concat"],
)
def test_several_losses_for_each_example_are_refused(views, static):
    with pytest.raises(ValueError, match=REFUSED):
        custom_step(
            lambda model, x, y: squared_errors(model, views(x), views(y)), static
        )
    assert not custom_step.changed


@static_or_not
def test_views_that_are_averaged_for_each_example_are_fine(static):
    def losses(model, x, y):
        x, y = (tf.repeat(values, VIEWS, axis=0) for values in (x, y))
        return tf.reduce_mean(
            tf.reshape(squared_errors(model, x, y), [-1, VIEWS]), axis=1
        )

    custom_step(losses, static)
    assert custom_step.changed


@pytest.mark.parametrize("batches", ["arrays", "static"])
def test_compute_loss_over_several_views_is_refused(batches):
    class Views(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1)

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x, y, y_pred, sample_weight, training=True):
            x, y = (tf.repeat(values, VIEWS, axis=0) for values in (x, y))
            return tf.reduce_mean(tf.square(y - self(x)))

    model = Views()
    x, y = data()
    model(x)
    model.compile(dp.optimizers.DPSGD())
    with pytest.raises(ValueError, match=REFUSED):
        if batches == "arrays":
            model.fit(x, y, batch_size=EXAMPLES, verbose=0)
        else:
            pairs = tf.data.Dataset.from_tensor_slices((x, y))
            model.fit(pairs.batch(EXAMPLES, drop_remainder=True), verbose=0)


@static_or_not
def test_tokens_as_rows_are_refused(static):
    x = np.zeros([EXAMPLES, 7], "int32")
    model = keras.Sequential(
        [keras.Input([7], dtype="int32"), L.Embedding(9, 4), L.Dense(3)]
    )

    def loss(y, logits):
        return keras.losses.sparse_categorical_crossentropy(
            tf.reshape(y, [-1]), tf.reshape(logits, [-1, 3]), from_logits=True
        )

    model.compile(dp.optimizers.DPSGD(expected_batch_size=EXAMPLES), loss)
    pairs = tf.data.Dataset.from_tensor_slices((x, x))
    with pytest.raises(ValueError, match=REFUSED):
        model.fit(pairs.batch(EXAMPLES, drop_remainder=static), verbose=0)


@pytest.mark.parametrize("rows", [1, 5])
def test_an_input_that_examples_share_is_refused_by_name(rows):
    shared = np.ones([rows, FEATURES], "float32")

    def losses(model, x, y, shared):
        return squared_errors(model, x - tf.reduce_mean(shared, axis=0), y)

    with pytest.raises(ValueError, match=REFUSED) as error:
        custom_step(losses, True, shared)
    assert f"({rows}, {FEATURES})" in str(error.value)
    assert not custom_step.changed


@static_or_not
def test_one_loss_for_the_whole_batch_is_refused(static):
    def losses(model, x, y):
        return tf.reduce_mean(squared_errors(model, x, y), keepdims=True)

    with pytest.raises(ValueError, match=REFUSED):
        custom_step(losses, static)


def test_a_function_that_closes_over_its_data_needs_one_loss_for_each_example():
    model = make_model()
    x, y = map(tf.constant, data())
    optimizer = dp.optimizers.DPSGD()

    def views():
        return squared_errors(model, tf.repeat(x, VIEWS, 0), tf.repeat(y, VIEWS, 0))

    with pytest.raises(ValueError, match="one row for each loss"):
        optimizer.minimize(views, model.trainable_variables)
    optimizer.minimize(lambda: squared_errors(model, x, y), model.trainable_variables)


def test_an_iterator_as_argument_is_no_input_that_examples_share():
    model = make_model()
    optimizer = dp.optimizers.DPSGD()

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        optimizer.minimize(squared_errors(model, x, y), model.trainable_variables)

    pairs = tf.data.Dataset.from_tensor_slices(data())
    step(iter(pairs.batch(EXAMPLES, drop_remainder=True)))
    assert int(optimizer.releases) == 1


def test_a_single_example_is_a_batch():
    model = make_model()
    x, y = data()
    model.compile(dp.optimizers.DPSGD(), "mse")
    model.train_on_batch(x[:1], y[:1])
    assert int(model.optimizer.releases) == 1
