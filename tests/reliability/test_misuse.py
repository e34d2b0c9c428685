"""Used in a way nobody planned: the right result, or an error that says why not."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import data, dense_model, flat, silent, update

import keras_dp_ext as dp


def compiled(model=None, optimizer=None, **arguments):
    model = model or dense_model()
    model.compile(optimizer or silent(), loss="mse", **arguments)
    return model


def releases(model):
    return int(model.optimizer.releases.numpy())


def test_gradients_of_a_tape_are_refused_in_a_graph_too():
    model, optimizer = dense_model(), dp.optimizers.DPSGD()
    x, y = data(8)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )

    before = flat(model)
    with pytest.raises(ValueError, match="needs the loss of each example"):
        step()
    np.testing.assert_array_equal(flat(model), before)


def test_the_scaled_loss_has_no_gradient_that_could_leak():
    model, optimizer = dense_model(), dp.optimizers.DPSGD()
    x, y = data(8)

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_mean(tf.square(model(x) - y)))
        assert tape.gradient(loss, model.trainable_variables) == [None] * 4

    gradient()


@pytest.mark.parametrize("jit_compile", [True, False])
def test_several_steps_per_execution_are_several_releases(jit_compile):
    x, y = data(32)
    weights = []
    for steps in (1, 4):
        model = compiled(
            optimizer=silent(expected_batch_size=None),
            steps_per_execution=steps,
            jit_compile=jit_compile,
        )
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        assert releases(model) == 4
        weights.append(flat(model))
    np.testing.assert_allclose(*weights, atol=1e-6)


def test_class_weights_act_before_the_bound():
    x, _ = data(16)
    labels = (x[:, 0] > 0).astype(int)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    moved = []
    for how in ("class_weight", "sample_weight"):
        model = dense_model(outputs=2)
        model.compile(silent(l2_norm_clip=0.3, expected_batch_size=None), loss=loss)
        before = flat(model)
        weight = (
            {0: 0.1, 1: 5.0} if how == "class_weight" else np.where(labels, 5.0, 0.1)
        )
        model.fit(x, labels, batch_size=16, verbose=0, **{how: weight})
        moved.append(flat(model) - before)
    np.testing.assert_allclose(*moved, atol=1e-6)
    # Divided by the public 16: within the bound although a weight is 5.
    assert np.linalg.norm(moved[0]) <= 0.3 + 1e-6


def test_frozen_layers_stay_and_cost_nothing():
    model = dense_model()
    model.layers[0].trainable = False
    frozen = model.layers[0].get_weights()
    compiled(model, dp.optimizers.EncodedSGD(expected_batch_size=8))
    update(model, *data(8))
    for old, new in zip(frozen, model.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.optimizer.privacy_claim().proven.num_parameters == 6


def test_layers_added_after_training_are_an_error():
    x, y = data(8)
    model = compiled()
    model.train_on_batch(x, y)
    model.add(keras.layers.Dense(1))
    model.compile(model.optimizer, loss="mse")
    with pytest.raises(ValueError, match="Unknown variable"):
        model.train_on_batch(x, y)


def test_variables_trained_by_two_optimizers_are_pointed_out():
    x, y = data(8)
    model = compiled()
    model.train_on_batch(x, y)
    with pytest.warns(UserWarning, match="another private optimizer with 1 releases"):
        compiled(model).train_on_batch(x, y)


def test_a_loss_over_the_batch_is_refused_and_one_per_example_is_bounded():
    class Extra(keras.layers.Layer):
        def __init__(self, loss):
            super().__init__()
            self._extra = loss

        def call(self, x):
            self.add_loss(self._extra(x))
            return x

    def model_with(loss):
        return compiled(
            keras.Sequential(
                [
                    keras.Input([4]),
                    keras.layers.Dense(3),
                    Extra(loss),
                    keras.layers.Dense(1),
                ]
            )
        )

    x, y = data(8)
    tied = model_with(lambda h: tf.square(tf.reduce_mean(h)))
    before = flat(tied)
    with pytest.raises(ValueError, match="hides its examples"):
        tied.train_on_batch(x, y)
    np.testing.assert_array_equal(flat(tied), before)
    separable = model_with(lambda h: 1e6 * tf.reduce_mean(tf.square(h)))
    assert np.linalg.norm(update(separable, x, y)) <= 8.0 + 1e-4


def test_a_model_inside_a_model_with_penalties():
    x, y = data(8)
    inner = keras.Sequential(
        [keras.layers.Dense(5, activation="tanh", kernel_regularizer="l2")]
    )
    model = compiled(keras.Sequential([keras.Input([4]), inner, keras.layers.Dense(1)]))
    kernel = inner.layers[0].kernel.numpy()
    moved = update(model, x, y, sample_weight=np.zeros(8, "float32"))
    # No example counts: what is left is the penalty's own gradient.
    np.testing.assert_allclose(moved[:20], -0.02 * np.ravel(kernel), atol=1e-6)
    np.testing.assert_allclose(moved[20:], 0.0, atol=1e-7)


def test_fit_twice_goes_on_counting_and_divides_by_its_own_batch_size():
    x, y = data(34)
    model = compiled(optimizer=silent(expected_batch_size=None, l2_norm_clip=1e-3))
    start = model.get_weights()
    moved = []
    # The last batch is smaller, so that the second fit could reuse the first's trace.
    for repeats in (1, 2):
        model.set_weights(start)
        before = flat(model)
        model.fit(
            np.concatenate([np.repeat(x[:32], repeats, axis=0), x[32:]]),
            np.concatenate([np.repeat(y[:32], repeats, axis=0), y[32:]]),
            batch_size=32 * repeats,
            steps_per_epoch=1,
            shuffle=False,
            verbose=0,
        )
        moved.append(flat(model) - before)
    np.testing.assert_allclose(*moved, atol=1e-8)
    assert releases(model) == 2


def test_train_on_batch_does_not_divide_by_the_size_at_hand():
    x, y = data(8)
    model = compiled(optimizer=silent(expected_batch_size=None))
    model.train_on_batch(x, y)
    before = flat(model)
    with pytest.raises(ValueError, match="`expected_batch_size`"):
        model.train_on_batch(x[:6], y[:6])
    np.testing.assert_array_equal(flat(model), before)
    model = compiled(optimizer=silent(expected_batch_size=8, l2_norm_clip=0.1))
    weights = model.get_weights()
    whole = update(model, x, y)
    model.set_weights(weights)
    first = update(model, x[:6], y[:6])
    model.set_weights(weights)
    np.testing.assert_allclose(whole, first + update(model, x[6:], y[6:]), atol=1e-6)


def test_an_empty_poisson_batch_is_noised_and_counted():
    x, y = data(8)
    model = compiled(
        optimizer=dp.optimizers.DPSGD(learning_rate=1.0, noise_multiplier=2.0)
    )
    # One example in a thousand: nearly all lots are empty.
    lots = dp.data.poisson_batches(
        np.repeat(x, 200, axis=0), np.repeat(y, 200, axis=0), batch_size=1
    )
    before = flat(model)
    model.fit(lots, steps_per_epoch=1, epochs=3, verbose=0)
    assert releases(model) == 3
    assert np.all(flat(model) != before)
