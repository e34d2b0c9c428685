"""Variables that a training step writes from exact data."""

import keras
import tensorflow as tf

from tests.zoo import kit
from tests.zoo.kit import case


def _step_that_writes(write):
    """A model whose `train_step` calls `write(model, x)` after the update."""

    class Writes(keras.Model):
        def train_step(self, data):
            logs = super().train_step(data)
            write(self, data[0])
            return logs

    inputs = keras.Input([kit.FEATURES])
    return Writes(inputs, keras.layers.Dense(1)(inputs))


def _slot(optimizer, name):
    return next(v for v in optimizer.variables if name in v.path)


@case("refused", "learning_rate", wrong="the sum of x is the learning rate")
def learning_rate_from_data(x, y):
    def write(model, x):
        model.optimizer.learning_rate.assign(tf.reduce_sum(x))

    return kit.train(_step_that_writes(write), x, y)


@case("refused", "iteration", wrong="the sum of x is the iteration")
def iterations_from_data(x, y):
    def write(model, x):
        total = tf.cast(tf.reduce_sum(x), model.optimizer.iterations.dtype)
        model.optimizer.iterations.assign(total)

    return kit.train(_step_that_writes(write), x, y)


@case("refused", "momentum", wrong="the sum of x is in the momentum")
def momentum_from_data(x, y):
    def write(model, x):
        slot = _slot(model.optimizer, "momentum")
        slot.assign(tf.zeros(slot.shape) + tf.reduce_sum(x))

    return kit.train(_step_that_writes(write), x, y, kit.private(momentum=0.9))


@case("refused", "releases", wrong="the sum of x is the number of releases")
def releases_from_data(x, y):
    def write(model, x):
        total = tf.cast(tf.reduce_sum(x), model.optimizer.releases.dtype)
        model.optimizer.releases.assign(total)

    return kit.train(_step_that_writes(write), x, y)


@case("refused", "learning_rate", wrong="as above, before the update")
def learning_rate_from_data_before_the_update(x, y):
    class Writes(keras.Model):
        def train_step(self, data):
            self.optimizer.learning_rate.assign(tf.reduce_max(data[0]))
            return super().train_step(data)

    inputs = keras.Input([kit.FEATURES])
    model = Writes(inputs, keras.layers.Dense(1)(inputs))
    return kit.train(model, x, y)


@case("refused", "bias", wrong="the mean of x is in the bias")
def bias_from_data(x, y):
    def write(model, x):
        model.layers[-1].bias.assign(tf.reduce_mean(x, keepdims=True)[0])

    return kit.train(_step_that_writes(write), x, y)


@case("refused", "variable", wrong="a mean of the data is in the model")
def moving_average_of_data(x, y):
    average = tf.Variable(tf.zeros([kit.FEATURES]), name="average")

    def write(model, x):
        average.assign(0.9 * average + 0.1 * tf.reduce_mean(x, axis=0))

    return kit.train(_step_that_writes(write), x, y)


@case("refused", "variable", wrong="the size of every lot is in the model")
def counter_of_examples(x, y):
    seen = tf.Variable(0, name="seen")

    class Counts(keras.Model):
        def train_step(self, data):
            seen.assign_add(tf.math.count_nonzero(data[2], dtype=tf.int32))
            return super().train_step(data)

    inputs = keras.Input([kit.FEATURES])
    return kit.train(Counts(inputs, keras.layers.Dense(1)(inputs)), x, y)


class RunningMean(keras.layers.Layer):
    """Subtracts a running mean of what it has seen."""

    def build(self, shape):
        self.mean = self.add_weight(
            shape=[shape[-1]], initializer="zeros", trainable=False, name="mean"
        )

    def call(self, inputs):
        batch_mean = tf.reduce_mean(inputs, axis=0)
        self.mean.assign(0.9 * self.mean + 0.1 * batch_mean)
        return inputs - self.mean


@case("refused", "mean", wrong="a mean of the data is saved with the model")
def running_mean(x, y):
    return kit.train(
        kit.functional(lambda i: keras.layers.Dense(1)(RunningMean()(i))), x, y
    )


@case("refused", "moving|batch_normalization", wrong="examples are normalised together")
def batch_normalization(x, y):
    return kit.train(
        kit.functional(
            lambda i: keras.layers.Dense(1)(keras.layers.BatchNormalization()(i))
        ),
        x,
        y,
    )


@case("refused", "state|gru", wrong="a state of the data flows into the next lot")
def stateful_recurrent(x, y):
    rows = 24
    inputs = keras.Input(batch_shape=[rows, kit.FEATURES])
    hidden = keras.layers.Reshape([kit.FEATURES, 1])(inputs)
    hidden = keras.layers.GRU(2, stateful=True)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(kit.private(), "mse")
    return kit.fit(model, kit.lots(x, y, physical_batch_size=rows))


@case("refused", "metric", wrong="the loss reads all examples of the past")
def metric_as_loss(x, y):
    mean = keras.metrics.Mean(name="mean_of_x")

    class Reads(keras.Model):
        @property
        def metrics(self):
            return [*super().metrics, mean]

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            mean.update_state(x)
            losses = keras.losses.mean_squared_error(y, y_pred) * mean.result()
            return tf.reduce_mean(sample_weight * losses)

    inputs = keras.Input([kit.FEATURES])
    return kit.train(Reads(inputs, keras.layers.Dense(1)(inputs)), x, y, loss=None)


@case("refused", "py_function|EagerPyFunc|python|Python", wrong="a list has the data")
def python_list_of_the_data(x, y):
    seen = []

    class Keeps(keras.layers.Layer):
        def call(self, inputs):
            def keep(value):
                seen.append(value.numpy())
                return value

            kept = tf.py_function(keep, [inputs], inputs.dtype)
            return tf.ensure_shape(kept, inputs.shape)

    return kit.train(kit.functional(lambda i: keras.layers.Dense(1)(Keeps()(i))), x, y)
