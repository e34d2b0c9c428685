"""Losses that do not vanish with the sample weight, on lots with padding rows."""

import keras
import tensorflow as tf

from tests.zoo import kit
from tests.zoo.kit import case

_WRONG = "the example takes the place of a padding row that has a gradient: shift 2"


@case("within", wrong=_WRONG, examples=["opposed", "huge"])
def activity_regularizer(x, y):
    l2 = keras.regularizers.L2(10.0)
    model = keras.Sequential(
        [keras.Input([kit.FEATURES]), keras.layers.Dense(4, activity_regularizer=l2)]
    )
    return kit.train(model, x, y)


class KLDivergence(keras.layers.Layer):
    """The usual sampling layer of a VAE."""

    def call(self, mean, log_variance):
        kl = tf.square(mean) + tf.exp(log_variance) - log_variance - 1.0
        self.add_loss(100.0 * tf.reduce_mean(tf.reduce_sum(kl, axis=1)))
        return mean


def _encoder():
    inputs = keras.Input([kit.FEATURES])
    mean = keras.layers.Dense(2, bias_initializer="ones")(inputs)
    log_variance = keras.layers.Dense(2, bias_initializer="ones")(inputs)
    latent = KLDivergence()(mean, log_variance)
    return keras.Model(inputs, keras.layers.Dense(1)(latent))


@case("within", wrong=_WRONG, examples=["opposed", "huge"])
def vae_with_kl_as_add_loss(x, y):
    return kit.train(_encoder(), x, y)


@case("within", wrong=_WRONG, examples=["opposed"])
def vae_with_kl_as_add_loss_under_xla(x, y):
    return kit.train(_encoder(), x, y, jit_compile=True)


class Autoencoder(keras.Model):
    """Reconstructs its inputs; the weights of the pipeline are forgotten."""

    def __init__(self):
        super().__init__()
        self.network = kit.dense(kit.FEATURES)

    def call(self, inputs):
        return self.network(inputs)

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        return tf.reduce_mean(keras.losses.mean_squared_error(x + 3.0, y_pred))


@case("within", wrong=_WRONG, examples=["opposed", "huge"])
def compute_loss_without_weights(x, y):
    model = Autoencoder()
    model.build([None, kit.FEATURES])
    return kit.train(model, x, y, loss=None)


class ForgetsWeights(keras.Model):
    """A `train_step` from a tutorial that knows `(x, y)` only."""

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape():
            losses = keras.losses.mean_squared_error(y + 3.0, self(x, training=True))
            loss = self.optimizer.scale_loss(tf.reduce_mean(losses))
        variables = self.trainable_variables
        self.optimizer.apply_gradients([(None, v) for v in variables])
        return {"loss": loss}


def _forgetful():
    inputs = keras.Input([kit.FEATURES])
    return ForgetsWeights(inputs, keras.layers.Dense(1)(inputs))


@case("within", wrong=_WRONG, examples=["opposed", "huge"])
def train_step_without_weights(x, y):
    return kit.train(_forgetful(), x, y, loss=None)


@case("within", wrong=_WRONG, examples=["opposed"])
def train_step_without_weights_on_shuffled_lots(x, y):
    import keras_dp_ext as dp

    model = _forgetful()
    model.compile(kit.private())
    return kit.fit(model, dp.data.shuffled_batches(x, y, batch_size=kit.LOT))


@case("within", wrong=_WRONG, examples=["opposed"])
def train_step_without_weights_in_lots_of_two_batches(x, y):
    model = _forgetful()
    model.compile(kit.private(gradient_accumulation_steps=2))
    return kit.fit(model, kit.lots(x, y, accumulation_steps=2))


@case(
    "refused",
    "weight",
    wrong="padding gets a weight and counts as an example",
)
def map_that_gives_padding_a_weight(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    return kit.fit(model, kit.lots(x, y).map(lambda x, y, w: (x, y, tf.ones_like(w))))


@case(
    "refused",
    "sample_weight|weight",
    wrong="padding is not told from examples any more",
)
def map_that_drops_the_weights(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    return kit.fit(model, kit.lots(x, y).map(lambda x, y, w: (x, y)))
