"""GANs in all the forms in which people write the discriminator's loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_dp_ext as dp
from tests.third_party.kit import (
    assert_updates,
    batches_of,
    clipped_mean,
    jacobian,
    numbers,
    private,
)

L = keras.layers
ROWS = 6


class GAN(keras.Model):
    """keras.io's DCGAN: real and generated images stacked in one batch."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential(
            [
                keras.Input((4,)),
                L.Dense(32),
                L.Reshape((4, 4, 2)),
                L.Conv2DTranspose(3, 4, strides=2, padding="same"),
                L.LeakyReLU(negative_slope=0.2),
                L.Conv2D(1, 3, padding="same", activation="tanh"),
            ]
        )
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                L.Conv2D(4, 3, strides=2, padding="same"),
                L.LeakyReLU(negative_slope=0.2),
                L.Flatten(),
                L.Dense(1),
            ]
        )
        self.seeds = keras.random.SeedGenerator(1)
        self.plain = keras.optimizers.SGD(0.1)
        self.built = True

    def call(self, z):
        return self.generator(z)

    def draw(self, real):
        return keras.random.normal((ops.shape(real)[0], 4), seed=self.seeds)

    def loss_of(self, real, fake):
        both = ops.concatenate([fake, real], axis=0)
        shape = (ops.shape(real)[0], 1)
        labels = ops.concatenate([ops.ones(shape), ops.zeros(shape)], axis=0)
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        return loss(labels, self.discriminator(both))

    def train_step(self, data):
        real = data[0] if isinstance(data, tuple) else data
        fake = self.generator(self.draw(real))
        weights = self.discriminator.trainable_weights
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.loss_of(real, fake))
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        weights = self.generator.trainable_weights
        with tf.GradientTape() as tape:
            fake = self.generator(self.draw(real))
            fooled = ops.mean(ops.softplus(-self.discriminator(fake)))
        self.plain.apply(tape.gradient(fooled, weights), weights)
        return {"loss": loss}


@pytest.mark.parametrize("poisson", [False, True])
def test_a_gan_that_stacks_real_and_generated_is_told_what_to_write(poisson):
    model = GAN()
    model.compile(private(ROWS))
    x = numbers(ROWS, 8, 8, 1)
    data = dp.poisson_batches(x, np.zeros(ROWS), 4) if poisson else batches_of(x)
    with pytest.raises(ValueError, match=r"loss\(real\) \+ loss\(fake\)"):
        model.fit(data, verbose=0)


class Pairs(GAN):
    """What the message advises: one real and one generated image to a loss."""

    def losses_of(self, real, fake):
        real, fake = self.discriminator(real), self.discriminator(fake)
        return ops.softplus(-real) + ops.softplus(fake)

    def loss_of(self, real, fake):
        return ops.mean(self.losses_of(real, fake))


class Wasserstein(Pairs):
    def losses_of(self, real, fake):
        return self.discriminator(fake) - self.discriminator(real)


class LeastSquares(Pairs):
    def losses_of(self, real, fake):
        real, fake = self.discriminator(real), self.discriminator(fake)
        return ops.square(real - 1.0)[:, 0] + ops.square(fake)[:, 0]


class TensorFlowDraws(Pairs):
    def draw(self, real):
        return tf.random.normal((tf.shape(real)[0], 4), seed=3)


class Recurrent(Pairs):
    """Rows of pixels, read one after the other."""

    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential(
            [keras.Input((8, 8, 1)), L.Reshape((8, 8)), L.GRU(3), L.Dense(1)]
        )


class Power(L.Layer):
    """A weight as an exponent: no rule, so the generator runs in the slow way, too."""

    def build(self, shape):
        self.exponents = self.add_weight(shape=shape[1:], initializer="ones")

    def call(self, x):
        return tf.pow(1.0 + tf.square(x), self.exponents)


class Slow(Pairs):
    """With activations that have gradients of their own."""

    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                L.Conv2D(4, 3, strides=2, padding="same", activation="silu"),
                L.Flatten(),
                Power(),
                L.Dense(1),
            ]
        )


def update_and_truth(kind, static):
    """The first update of the discriminator, and that of the jacobian."""
    keras.utils.set_random_seed(0)
    honest, model = kind(), kind()
    for mine, other in zip(model.variables, honest.variables, strict=True):
        mine.assign(other)
    real = numbers(ROWS, 8, 8, 1)

    def losses(model, real, _):
        fake = model.generator(model.draw(real))
        return tf.reshape(model.losses_of(real, fake), [-1])

    weights = honest.discriminator.trainable_variables
    tf.random.set_seed(0)
    gradients = jacobian(honest, losses, real, np.zeros(ROWS), weights)
    expected, clip = clipped_mean(gradients)
    weights = model.discriminator.trainable_variables
    former = [weight.numpy().astype(float) for weight in weights]
    model.compile(private(ROWS, clip))
    tf.random.set_seed(0)
    model.fit(batches_of(real, static=static), verbose=0)
    return weights, former, expected


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
@pytest.mark.parametrize(
    "kind",
    [Pairs, Wasserstein, LeastSquares, TensorFlowDraws, Recurrent],
    ids=lambda kind: kind.__name__,
)
def test_pairs_of_real_and_generated_train_by_rule(kind, static, recwarn):
    assert_updates(*update_and_truth(kind, static))
    assert not [w for w in recwarn if "No fast per-example" in str(w.message)]


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
def test_pairs_train_without_a_rule(static):
    """A transposed convolution knows the batch by a shape, which must shrink with it."""
    with pytest.warns(UserWarning, match="No fast per-example"):
        found = update_and_truth(Slow, static)
    assert_updates(*found)


@pytest.mark.parametrize("kind", [Pairs, Recurrent], ids=lambda kind: kind.__name__)
def test_pairs_train_under_xla(kind, recwarn):
    """XLA draws other numbers from the same seed; the probe compares the gradients."""
    model = kind()
    model.compile(private(ROWS), jit_compile=True)
    model.fit(batches_of(numbers(ROWS, 8, 8, 1), static=True), verbose=0)
    assert int(model.optimizer.releases) == 1
    assert not [w for w in recwarn if "No fast per-example" in str(w.message)]


class Apart(GAN):
    """Means of their own: that of the generated images needs no data."""

    def loss_of(self, real, fake):
        real = ops.mean(ops.softplus(-self.discriminator(real)))
        return real + ops.mean(ops.softplus(self.discriminator(fake)))


class ApartFixed(Apart):
    def draw(self, real):
        return keras.random.normal((8, 4), seed=self.seeds)


class ApartTensorFlow(Apart):
    def draw(self, real):
        return tf.random.normal((8, 4), seed=3)


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
@pytest.mark.parametrize(
    "kind", [Apart, ApartFixed, ApartTensorFlow], ids=lambda kind: kind.__name__
)
def test_a_mean_over_generated_images_is_added_behind_the_noise(kind, static):
    """The update: clipped gradients of real images, and the whole gradient of the mean."""
    keras.utils.set_random_seed(0)
    honest, model = kind(), kind()
    for mine, other in zip(model.variables, honest.variables, strict=True):
        mine.assign(other)
    real = numbers(ROWS, 8, 8, 1)
    weights = honest.discriminator.trainable_variables
    tf.random.set_seed(0)
    with tf.GradientTape() as tape:
        fake = honest.generator(honest.draw(real))
        loss = ops.mean(ops.softplus(honest.discriminator(fake)))
    of_fake = [g.numpy() for g in tape.gradient(loss, [w.value for w in weights])]

    def losses(model, real, _):
        return ops.softplus(-model.discriminator(real))[:, 0]

    of_real, clip = clipped_mean(
        jacobian(honest, losses, real, np.zeros(ROWS), weights)
    )
    weights = model.discriminator.trainable_variables
    former = [weight.numpy().astype(float) for weight in weights]
    model.compile(private(ROWS, clip))
    tf.random.set_seed(0)
    model.fit(batches_of(real, static=static), verbose=0)
    expected = [a + b for a, b in zip(of_real, of_fake, strict=True)]
    assert_updates(weights, former, expected)
