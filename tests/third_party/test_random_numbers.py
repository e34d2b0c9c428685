"""Models that draw by `tf.random`: VAEs, diffusion, dropout in TensorFlow's style."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.third_party.kit import batches_of, check_fit, numbers, private

L = keras.layers
ROWS = 6


class Sampling(L.Layer):
    """As in keras.io's VAE of old, with `tf.random`."""

    def call(self, inputs):
        mean, log_variance = inputs
        shape = tf.shape(mean)
        epsilon = tf.random.normal((shape[0], shape[1]), seed=3)
        return mean + tf.exp(0.5 * log_variance) * epsilon


class VAE(keras.Model):
    """keras.io's convolutional VAE, with `scale_loss` in its `train_step`."""

    scaled = True

    def __init__(self):
        super().__init__()
        image = keras.Input((8, 8, 1))
        x = L.Conv2D(4, 3, activation="relu", strides=2, padding="same")(image)
        x = L.Dense(8, activation="relu")(L.Flatten()(x))
        mean, log_variance = L.Dense(2)(x), L.Dense(2)(x)
        z = Sampling()([mean, log_variance])
        self.encoder = keras.Model(image, [mean, log_variance, z])
        latent = keras.Input((2,))
        x = L.Reshape((4, 4, 2))(L.Dense(32, activation="relu")(latent))
        x = L.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
        x = L.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x)
        self.decoder = keras.Model(latent, x)
        self.total = keras.metrics.Mean(name="loss")
        self.built = True

    @property
    def metrics(self):
        return [self.total]

    def losses_of(self, data):
        mean, log_variance, z = self.encoder(data)
        made = self.decoder(z)
        pixels = keras.losses.binary_crossentropy(data, made)
        reconstruction = tf.reduce_sum(pixels, axis=(1, 2))
        kl = -0.5 * (1 + log_variance - tf.square(mean) - tf.exp(log_variance))
        return reconstruction, tf.reduce_sum(kl, axis=1)

    def call(self, x):
        return self.decoder(self.encoder(x)[2])

    def train_step(self, data):
        data = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            reconstruction, kl = self.losses_of(data)
            loss = tf.reduce_mean(reconstruction) + tf.reduce_mean(kl)
            if self.scaled:
                loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_weights, strict=True)
        )
        self.total.update_state(loss)
        return {"loss": self.total.result()}


def images():
    return 1 / (1 + np.exp(-numbers(ROWS, 8, 8, 1)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_vae_that_draws_by_tf_random(jit_compile):
    def losses(model, x, _):
        return tf.add(*model.losses_of(x))

    if jit_compile:  # XLA draws other numbers from the same seed: it trains.
        model = VAE()
        model.compile(private(ROWS), jit_compile=True)
        history = model.fit(batches_of(images(), static=True), verbose=0).history
        assert np.isfinite(history["loss"][0])
    else:
        check_fit(VAE, images(), np.zeros(ROWS), losses=losses)


def test_a_vae_without_scale_loss_is_told_the_line_to_write():
    class AsOnKerasIO(VAE):
        scaled = False

    model = AsOnKerasIO()
    model.compile(private(ROWS))
    with pytest.raises(ValueError, match=r"self\.optimizer\.scale_loss\(loss\)"):
        model.fit(batches_of(images()), verbose=0)


class Diffusion(keras.Model):
    """DDPM: a time and a noise for each image, drawn in `train_step`."""

    def __init__(self):
        super().__init__()
        image, time = keras.Input((8, 8, 1)), keras.Input(())
        embedded = L.Dense(4, activation="swish")(time[:, None])
        x = L.Conv2D(4, 3, padding="same")(image) + embedded[:, None, None, :]
        x = L.Conv2D(1, 3, padding="same")(L.Activation("swish")(x))
        self.network = keras.Model([image, time], x)
        self.built = True

    def call(self, x):
        return self.network([x, tf.zeros(tf.shape(x)[:1])])

    def losses_of(self, x):
        rows = tf.shape(x)[0]
        t = tf.random.uniform([rows], 0, 100, dtype=tf.int32, seed=5)
        alpha = tf.gather(tf.linspace(0.99, 0.01, 100), t)[:, None, None, None]
        noise = tf.random.normal(tf.shape(x), seed=6)
        noisy = tf.sqrt(alpha) * x + tf.sqrt(1 - alpha) * noise
        found = self.network([noisy, tf.cast(t, tf.float32) / 100.0], training=True)
        return tf.reduce_mean(tf.square(found - noise), axis=[1, 2, 3])

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.losses_of(data[0]))
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}


def test_diffusion_that_draws_times_and_noise():
    def losses(model, x, _):
        return model.losses_of(x)

    check_fit(Diffusion, images(), np.zeros(ROWS), losses=losses)


class TFDropout(L.Layer):
    def call(self, x, training=False):
        return tf.nn.dropout(x, 0.4, seed=2) if training else x


class DropPath(L.Layer):
    """Stochastic depth as in keras.io's CCT."""

    def call(self, x, training=False):
        if not training:
            return x
        shape = (tf.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        keep = tf.floor(0.7 + tf.random.uniform(shape, 0, 1, seed=4))
        return x / 0.7 * keep


class GumbelSoftmax(L.Layer):
    def call(self, logits):
        uniform = tf.random.uniform(tf.shape(logits), 1e-6, 1, seed=8)
        return tf.nn.softmax((logits - tf.math.log(-tf.math.log(uniform))) / 0.5)


class OneOfThem(L.Layer):
    """A class drawn for each example, as an embedding."""

    def build(self, shape):
        self.table = self.add_weight(shape=(shape[-1], 3), name="table")

    def draw(self, logits):
        return tf.random.categorical(logits, 1, seed=9)[:, 0]

    def call(self, logits):
        drawn = self.draw(logits)
        return tf.gather(self.table, drawn) * tf.reduce_sum(logits, 1, keepdims=True)


class OneOfThemBySeed(OneOfThem):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def draw(self, logits):
        return keras.random.categorical(logits, 1, seed=self.seeds)[:, 0]


class TruncatedNoise(L.Layer):
    def call(self, x):
        return x * (1 + tf.random.truncated_normal(tf.shape(x), stddev=0.3, seed=7))


@pytest.mark.parametrize(
    "layer",
    [TFDropout, DropPath, GumbelSoftmax, OneOfThemBySeed, TruncatedNoise],
    ids=lambda layer: layer.__name__,
)
def test_layers_that_draw_by_tf_random(layer):
    def build():
        inputs = keras.Input((5,))
        x = layer()(L.Dense(4)(inputs))
        return keras.Model(inputs, L.Dense(1)(x))

    def losses(model, x, y):
        return tf.square(model(x, training=True) - y)[:, 0]

    check_fit(build, numbers(ROWS, 5), numbers(ROWS, 1, seed=1), "mse", losses=losses)


def test_draws_from_data_train_or_are_told_of_seeds():
    """Whether two runs of the probe differ is up to what they draw."""
    model = keras.Sequential([keras.Input((5,)), L.Dense(4), OneOfThem(), L.Dense(1)])
    model.compile(private(ROWS), "mse")
    try:
        model.fit(batches_of(numbers(ROWS, 5), numbers(ROWS, 1)), verbose=0)
    except ValueError as error:
        assert "Multinomial" in str(error)
        assert "keras.random.SeedGenerator" in str(error)


def test_a_generator_of_tensorflow_trains():
    class Noisy(L.Layer):
        def __init__(self):
            super().__init__()
            self.generator = tf.random.Generator.from_seed(1)

        def call(self, x):
            return x + self.generator.normal(tf.shape(x))

    model = keras.Sequential([keras.Input((5,)), L.Dense(4), Noisy(), L.Dense(1)])
    model.compile(private(ROWS), "mse")
    model.fit(batches_of(numbers(ROWS, 5), numbers(ROWS, 1)), verbose=0)
    assert int(model.optimizer.releases) == 1


def test_mixup_is_mixing_and_is_told_so():
    class Mixup(L.Layer):
        def call(self, x):
            rows = tf.random.shuffle(tf.range(tf.shape(x)[0]))
            return 0.7 * x + 0.3 * tf.gather(x, rows)

    model = keras.Sequential([keras.Input((5,)), Mixup(), L.Dense(1)])
    model.compile(private(ROWS), "mse")
    with pytest.raises(ValueError, match="mix") as caught:
        model.fit(batches_of(numbers(ROWS, 5), numbers(ROWS, 1)), verbose=0)
    assert "GroupNormalization" not in str(caught.value)
