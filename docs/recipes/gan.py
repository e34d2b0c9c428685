"""A GAN in which only the discriminator sees data, and only it is trained privately.

The generator learns from the discriminator alone: what is computed from a private result
is private. So its optimizer is an ordinary one, and costs nothing.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_dp_ext as dp

LATENT, EPOCHS, BATCH = 4, 100, 100


def softplus_loss(logits, is_real):
    return ops.softplus(-logits if is_real else logits)[:, 0]


class GAN(keras.Model):
    def __init__(self):
        super().__init__()
        dense = keras.layers.Dense
        self.generator = keras.Sequential(
            [keras.Input([LATENT]), dense(16, activation="tanh"), dense(2)]
        )
        self.discriminator = keras.Sequential(
            [keras.Input([2]), dense(16, activation="tanh"), dense(1)]
        )
        self.generator_optimizer = keras.optimizers.Adam(0.001, beta_1=0.5)
        self.seeds = keras.random.SeedGenerator(0)
        self.built = True

    def call(self, z):
        return self.generator(z)

    def train_step(self, data):
        x, _, weight = data
        z = keras.random.normal([BATCH, LATENT], seed=self.seeds)
        weights = self.discriminator.trainable_variables
        with tf.GradientTape() as tape:
            real = weight * softplus_loss(self.discriminator(x), is_real=True)
            # No data in here: it is added behind the noise.
            fake = softplus_loss(self.discriminator(self.generator(z)), is_real=False)
            loss = self.optimizer.scale_loss(ops.mean(real) + ops.mean(fake))
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        weights = self.generator.trainable_variables
        with tf.GradientTape() as tape:
            judged = self.discriminator(self.generator(z))
            loss = ops.mean(softplus_loss(judged, is_real=True))
        self.generator_optimizer.apply(tape.gradient(loss, weights), weights)
        return {"fooled": loss}


rng = np.random.default_rng(0)
x = rng.normal([1.0, -0.5], [0.3, 0.1], size=[2000, 2]).astype("float32")

model = GAN()
model.compile(
    dp.DPAdam.for_budget(
        epsilon=3,
        num_examples=len(x),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.005,
        beta_1=0.5,
    )
)
history = model.fit(
    dp.poisson_batches(x, np.zeros(len(x)), batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
made = model.generator.predict(rng.normal(size=[500, LATENT]), verbose=0)
print(f"mean {made.mean(axis=0).round(2)} at epsilon {history['epsilon'][-1]:.2f}")
