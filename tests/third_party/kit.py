"""One `fit` of one batch, against one gradient for each example.

The models of this folder are written as in keras.io's examples and TensorFlow's tutorials,
not as in the tests of the engine.
"""

import warnings

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp

# Of the largest entry of a weight's update: float32, in another order.
TOLERANCE = 1e-4
# Large, so that the change of a weight is read off without loss.
LEARNING_RATE = 1024.0


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def whole(below, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, below, shape).astype("int32")


def batches_of(*data, static=False):
    """One batch, of a size that TensorFlow does not know unless it is static."""
    rows = len(tf.nest.flatten(data)[0])
    data = data if len(data) > 1 else data[0]
    return tf.data.Dataset.from_tensor_slices(data).batch(rows, drop_remainder=static)


def private(rows, clip=1e-2, **arguments):
    return dp.DPSGD(
        learning_rate=LEARNING_RATE,
        l2_norm_clip=clip,
        noise_multiplier=0.0,
        expected_batch_size=rows,
        **arguments,
    )


def loop(model, x, y):
    """Gradients of every example by itself, through the compiled loss."""
    variables = [weight.value for weight in model.trainable_variables]

    @tf.function
    def gradient(x, y):
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=outputs, training=True)
        found = tape.gradient(loss, variables, unconnected_gradients="zero")
        return [tf.convert_to_tensor(one) for one in found]

    rows = []
    for i in range(len(tf.nest.flatten(x)[0])):
        one = tf.nest.map_structure(lambda a, i=i: tf.constant(a[i : i + 1]), (x, y))
        rows.append([np.asarray(value, float) for value in gradient(*one)])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def jacobian(model, losses, x, y, variables=None):
    """Gradients of every loss of one batch: random numbers are drawn once for all.

    `losses(model, x, y)` has one for each example. For models that draw with seeds.
    """
    variables = model.trainable_variables if variables is None else variables
    variables = [weight.value for weight in variables]

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            values = losses(model, x, y)
        return tape.jacobian(
            values,
            variables,
            unconnected_gradients="zero",
            experimental_use_pfor=False,
        )

    return [np.asarray(value, float) for value in gradients(x, y)]


def clipped_mean(gradients, clip=None):
    """The update without noise, and the clip: the median of the norms."""
    rows = len(gradients[0])
    squares = [np.sum(np.reshape(g, [rows, -1]) ** 2, axis=1) for g in gradients]
    norms = np.sqrt(np.sum(squares, axis=0))
    clip = float(np.median(norms)) if clip is None else clip
    scales = np.minimum(1.0, clip / np.maximum(norms, 1e-30)) / rows
    return [np.tensordot(scales, g, 1) for g in gradients], clip


def assert_updates(weights, former, expected, tolerance=TOLERANCE):
    """Weights moved from their former values as expected."""
    largest = max(np.abs(mean).max() for mean in expected)
    assert largest > 0, "a test that cannot fail"
    for weight, before, mean in zip(weights, former, expected, strict=True):
        change = (before - weight.numpy().astype(float)) / LEARNING_RATE
        scale = max(np.abs(mean).max(), 1e-3 * largest)
        error = np.abs(change - mean).max() / scale
        assert error <= tolerance, (weight.path, error)


def _built(build, x):
    keras.utils.set_random_seed(0)
    model = build()
    if not model.built:
        model(tf.nest.map_structure(tf.convert_to_tensor, x))
    return model


def check_fit(
    build,
    x,
    y,
    loss=None,
    *,
    losses=None,
    jit_compile=False,
    static=False,
    slow_path=False,
    tolerance=TOLERANCE,
    **compiled,
):
    """`compile`, `fit`: the first update is that of the loop.

    `losses` is for models that draw random numbers, see `jacobian`. The slow path is an
    error unless it is allowed.
    """
    honest, model = _built(build, x), _built(build, x)
    for mine, other in zip(model.variables, honest.variables, strict=True):
        mine.assign(other)  # Seeds, too.
    honest.compile("sgd", loss, **compiled)
    if losses is None:
        truth = loop(honest, x, y)
    else:
        tf.random.set_seed(0)
        truth = jacobian(honest, losses, x, y)
    expected, clip = clipped_mean(truth)
    rows = len(tf.nest.flatten(x)[0])
    former = [weight.numpy().astype(float) for weight in model.trainable_variables]
    optimizer = private(rows, clip)
    model.compile(optimizer, loss, jit_compile=jit_compile, **compiled)
    data = batches_of(x, y, static=static or jit_compile)
    tf.random.set_seed(0)
    with warnings.catch_warnings():
        if not slow_path:
            warnings.filterwarnings("error", message=".*No fast per-example")
        model.fit(data, verbose=0)
    assert int(optimizer.releases) == 1
    assert_updates(model.trainable_variables, former, expected, tolerance)
    return model
