"""Bad input gets an error that says what was received; nothing trains by accident."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

L = keras.layers
X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(12, 1)).astype("float32")


def model():
    return keras.Sequential([keras.Input([4]), L.Dense(1)])


def fit(optimizer, loss="mse", built=None, **compile_arguments):
    built = built or model()
    before = built.get_weights()
    built.compile(optimizer, loss=loss, **compile_arguments)
    try:
        built.fit(X, Y, batch_size=6, verbose=0)
    finally:
        for old, new in zip(before, built.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_a_scalar_loss_that_hides_the_examples():
    def root_mean_square(y, p):
        return tf.sqrt(tf.reduce_mean(tf.square(y - p)))

    with pytest.raises(ValueError, match=r"hides its examples.*Sqrt.*reduction=None"):
        fit(dp.optimizers.DPSGD(), loss=root_mean_square)


def test_microbatches_that_do_not_divide_the_batch():
    with pytest.raises(ValueError, match=r"num_microbatches.*4 for 6 examples"):
        fit(dp.optimizers.DPSGD(num_microbatches=4))


@pytest.mark.parametrize(
    "arguments",
    [
        {"l2_norm_clip": -1.0},
        {"l2_norm_clip": 0.0},
        {"l2_norm_clip": float("nan")},
        {"noise_multiplier": -0.1},
        {"noise_multiplier": float("inf")},
        {"num_microbatches": 0},
        {"num_microbatches": 2.5},
        {"gradient_accumulation_steps": 0},
        {"expected_batch_size": -3},
        {"loss_scale_factor": 2.0},
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}`.*Received"):
        dp.optimizers.DPSGD(**arguments)


def test_a_model_without_trainable_weights():
    frozen = model()
    frozen.trainable = False
    with pytest.raises(ValueError, match="no trainable weights"):
        fit(dp.optimizers.DPSGD(), built=frozen)


def test_run_eagerly():
    with pytest.raises(ValueError, match=r"run_eagerly=True.*minimize"):
        fit(dp.optimizers.DPSGD(), run_eagerly=True)


def test_gradients_of_a_whole_batch_are_refused():
    net, optimizer = model(), dp.optimizers.DPSGD()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(net(X) - Y))
    gradients = tape.gradient(loss, net.trainable_variables)
    pairs = list(zip(gradients, net.trainable_variables, strict=True))
    with pytest.raises(ValueError, match="loss of each example"):
        optimizer.apply_gradients(pairs)
    with pytest.raises(ValueError, match="loss of each example"):
        optimizer.apply(gradients, net.trainable_variables)


def test_minimize_refuses_a_scalar_loss():
    net, optimizer = model(), dp.optimizers.DPSGD()

    @tf.function
    def step():
        loss = tf.reduce_mean(tf.square(net(X) - Y))
        optimizer.minimize(loss, net.trainable_variables)

    with pytest.raises(ValueError, match="one loss for each example"):
        step()


def test_make_private_refuses_what_is_no_plain_optimizer():
    with pytest.raises(ValueError, match="subclass"):
        dp.optimizers.make_private("sgd")
    with pytest.raises(ValueError, match="plain optimizer"):
        dp.optimizers.make_private(dp.optimizers.DPSGD)


def test_a_changing_batch_size_in_a_custom_loop_must_be_announced():
    net, optimizer = model(), dp.optimizers.DPSGD()

    @tf.function
    def step(x, y):
        losses = keras.losses.mean_squared_error(y, net(x))
        optimizer.minimize(losses, net.trainable_variables)

    step(tf.constant(X[:6]), tf.constant(Y[:6]))
    with pytest.raises(ValueError, match="expected_batch_size"):
        step(tf.constant(X[:5]), tf.constant(Y[:5]))


def test_eager_losses_come_with_a_warning_that_nothing_can_be_verified():
    net, optimizer = model(), dp.optimizers.DPSGD()
    with tf.GradientTape() as tape:
        losses = keras.losses.mean_squared_error(Y, net(X))
    with pytest.warns(UserWarning, match="cannot be verified"):
        optimizer.minimize(losses, net.trainable_variables, tape=tape)


def test_a_function_of_losses_is_verified_in_eager_mode_too():
    optimizer = dp.optimizers.DPSGD()
    net = keras.Sequential([keras.Input([4]), L.Dense(3), L.BatchNormalization()])
    with pytest.raises(ValueError, match=r"mixes the examples|from the data"):
        optimizer.minimize(
            lambda: keras.losses.mean_squared_error(Y, net(X, training=True)),
            net.trainable_variables,
        )
