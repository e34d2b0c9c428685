"""No state may be written from the data, unless it is known to be harmless."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

L = keras.layers
EXAMPLES, FEATURES = 16, 5
REFUSED = r"updates .* from the data.*without bound or noise"


def data(shape=(EXAMPLES, FEATURES)):
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape).astype("float32")
    return x, generator.normal(size=(EXAMPLES, 1)).astype("float32")


def fit(*layers, loss="mse", x=None, jit_compile=False, **compile_arguments):
    default_x, y = data()
    x = default_x if x is None else x
    model = keras.Sequential([keras.Input(batch_shape=x.shape), *layers, L.Dense(1)])
    model.compile(
        dp.optimizers.DPSGD(), loss, jit_compile=jit_compile, **compile_arguments
    )
    model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    return model


class RunningMean(L.Layer):
    """Keeps statistics in a TensorFlow variable, which no list of weights holds."""

    def build(self, shape):
        self.mean = tf.Variable(tf.zeros([3, shape[-1]]), trainable=False)

    def call(self, x, training=False):
        result = x - self.mean[0]
        if training:
            self.write(x)
        return result

    def write(self, x):
        self.mean.assign(0.5 * self.mean + 0.5 * tf.reduce_mean(x, axis=0))


class ScatterAdd(RunningMean):
    def write(self, x):
        self.mean.scatter_nd_add([[0]], tf.reduce_mean(x, axis=0, keepdims=True))


class ScatterMax(RunningMean):
    def write(self, x):
        largest = tf.reduce_max(x, axis=0, keepdims=True)
        self.mean.scatter_max(tf.IndexedSlices(largest, tf.constant([0])))


class InsideOfFunction(RunningMean):
    def write(self, x):
        tf.function(lambda: RunningMean.write(self, x), autograph=False)()


class InsideOfBranch(RunningMean):
    """Writes a constant, but the data decide when."""

    def write(self, x):
        def count():
            self.mean.assign_add(tf.ones_like(self.mean))
            return 1.0

        tf.cond(tf.reduce_sum(x) > 0, count, lambda: 0.0)


class InsideOfLoop(RunningMean):
    def write(self, x):
        def body(i):
            self.mean.assign_add(tf.ones_like(self.mean) * tf.reduce_sum(x[i]))
            return i + 1

        tf.while_loop(lambda i: i < 3, body, [0])


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("layer", [RunningMean, ScatterAdd, ScatterMax])
def test_statistics_in_a_layer_are_refused(layer, jit_compile):
    layer = layer()
    with pytest.raises(ValueError, match=REFUSED):
        fit(layer, jit_compile=jit_compile)
    assert not layer.mean.numpy().any()


@pytest.mark.parametrize("layer", [InsideOfFunction, InsideOfBranch, InsideOfLoop])
def test_statistics_that_a_called_function_writes_are_refused(layer):
    layer = layer()
    with pytest.raises(ValueError, match=REFUSED):
        fit(layer)
    assert not layer.mean.numpy().any()


def test_a_hash_table_of_the_data_is_refused():
    class Remember(L.Layer):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.experimental.MutableHashTable(
                tf.int64, tf.float32, 0.0
            )

        def call(self, x):
            self.table.insert(tf.range(1, dtype=tf.int64), x[0, :1])
            return x

    with pytest.raises(ValueError, match=REFUSED):
        fit(Remember())


def test_a_running_mean_in_a_loss_is_refused():
    class Relative(keras.losses.Loss):
        def __init__(self):
            super().__init__()
            self.mean = keras.Variable(1.0, trainable=False)

        def call(self, y, predictions):
            errors = tf.reduce_mean(tf.square(y - predictions), axis=-1)
            result = errors / self.mean
            self.mean.assign(0.5 * self.mean + 0.5 * tf.reduce_mean(errors))
            return result

    loss = Relative()
    with pytest.raises(ValueError, match=REFUSED):
        fit(loss=loss)
    assert float(loss.mean) == 1.0


@pytest.mark.parametrize("layer", [L.LSTM, L.GRU, L.SimpleRNN])
def test_stateful_recurrent_layers_are_refused(layer):
    x, _ = data((EXAMPLES, 4, FEATURES))
    with pytest.raises(ValueError, match=rf"{REFUSED}.*stateful"):
        fit(layer(3, stateful=True), x=x)


@pytest.mark.parametrize("bound", [False, True])
def test_a_function_that_closes_over_its_data_is_checked(bound):
    x, y = map(tf.constant, data())
    layer = RunningMean()
    model = keras.Sequential([keras.Input([FEATURES]), layer, L.Dense(1)])
    optimizer = dp.optimizers.DPSGD()
    if bound:
        optimizer.bind(model)

    def losses():
        return tf.reduce_mean(tf.square(y - model(x, training=True)), axis=-1)

    with pytest.raises(ValueError, match=REFUSED):
        optimizer.minimize(losses, model.trainable_variables)
    assert not layer.mean.numpy().any()


class Centred(keras.Model):
    """Updates what it likes after the weights, as published code does."""

    def __init__(self, afterwards):
        super().__init__()
        self.dense = L.Dense(1)
        self.centre = self.add_weight(
            shape=(FEATURES,), initializer="zeros", trainable=False, name="centre"
        )
        self.mean_error = keras.metrics.Mean()
        self.afterwards = afterwards

    def call(self, x):
        return self.dense(x - self.centre)

    def train_step(self, pair):
        x, y = pair
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.square(y - self(x)), axis=-1)
            loss = self.optimizer.scale_loss(tf.reduce_mean(errors))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        self.afterwards(self, x)
        return {"loss": loss}


def train_centred(afterwards, jit_compile=False):
    x, y = data()
    model = Centred(afterwards)
    model(x)
    before = model.get_weights()
    model.compile(dp.optimizers.DPSGD(), jit_compile=jit_compile)
    try:
        model.fit(x, y, batch_size=EXAMPLES, verbose=0)
    finally:
        train_centred.changed = any(
            not np.array_equal(old, new)
            for old, new in zip(before, model.get_weights(), strict=True)
        )
    return model


def move_centre(model, x):
    model.centre.assign(tf.reduce_mean(x, axis=0))


def move_centre_by_metric(model, x):
    model.mean_error.update_state(x)
    model.centre.assign(tf.ones([FEATURES]) * model.mean_error.result())


def overwrite_trainable(model, x):
    model.dense.bias.assign(tf.reduce_mean(x, axis=0)[:1])


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "afterwards", [move_centre, move_centre_by_metric, overwrite_trainable]
)
def test_writes_after_the_private_update_are_refused(afterwards, jit_compile):
    with pytest.raises(ValueError, match=REFUSED):
        train_centred(afterwards, jit_compile)
    assert not train_centred.changed


def test_metrics_and_averages_of_weights_are_fine():
    def afterwards(model, x):
        model.mean_error.update_state(x)
        model.centre.assign(0.9 * model.centre + model.dense.kernel[:, 0])

    assert train_centred(afterwards).mean_error.count.numpy() > 0
    assert train_centred.changed


def test_a_loss_that_reads_a_metric_is_refused():
    seen = keras.metrics.MeanSquaredError()

    def loss(y, predictions):
        return tf.reduce_mean(tf.square(y - predictions), axis=-1) / (1 + seen.result())

    with pytest.raises(ValueError, match="reads the metric"):
        fit(loss=loss, metrics=[seen])


def test_compiled_metrics_are_fine():
    model = fit(metrics=["mae", keras.metrics.RootMeanSquaredError()])
    assert int(model.optimizer.releases) == 1


def test_counters_seeds_and_weight_statistics_are_fine():
    class Counter(L.Layer):
        def build(self, shape):
            self.steps = self.add_weight(
                shape=(), dtype="int64", initializer="zeros", trainable=False
            )

        def call(self, x):
            self.steps.assign_add(1)
            return x

    counter = Counter()
    fit(counter, L.Dropout(0.5), L.SpectralNormalization(L.Dense(4)))
    assert int(counter.steps.numpy()) == 1


def test_two_private_optimizers_in_one_step_are_fine():
    """A generator and its critic: each sees the noised update of the other."""
    first = keras.Sequential([keras.Input([FEATURES]), L.Dense(1)])
    second = keras.Sequential([keras.Input([FEATURES]), L.Dense(1)])
    optimizers = [dp.optimizers.DPSGD(), dp.optimizers.DPSGD()]
    for optimizer, model in zip(optimizers, (first, second), strict=True):
        optimizer.bind(model)

    @tf.function
    def step(x, y):
        for optimizer, model in zip(optimizers, (first, second), strict=True):
            errors = tf.square(y - first(x) * second(x))
            optimizer.minimize(tf.reduce_mean(errors, -1), model.trainable_variables)

    step(*map(tf.constant, data()))
    assert [int(optimizer.releases) for optimizer in optimizers] == [1, 1]
