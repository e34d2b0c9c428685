"""A variational autoencoder: one loss for each image, in `compute_loss`."""

import keras
import numpy as np
from keras import ops

import keras_dp_ext as dp

LATENT, EPOCHS, BATCH = 4, 15, 128


class Sampling(keras.layers.Layer):
    """Draws z; `keras.random` with a seed generator, not `tf.random`."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, mean, log_variance):
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + ops.exp(0.5 * log_variance) * noise


class VAE(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(64, activation="tanh")
        self.mean = keras.layers.Dense(LATENT)
        self.log_variance = keras.layers.Dense(LATENT, kernel_initializer="zeros")
        self.sampling = Sampling()
        self.decoder = keras.Sequential(
            [keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(64)]
        )

    def call(self, x):
        hidden = self.hidden(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return self.decoder(self.sampling(mean, log_variance)), mean, log_variance

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        logits, mean, log_variance = y_pred
        reconstruction = ops.binary_crossentropy(x, logits, from_logits=True)
        divergence = ops.square(mean) + ops.exp(log_variance) - log_variance - 1
        losses = ops.sum(reconstruction, axis=1) + 0.5 * ops.sum(divergence, axis=1)
        return ops.mean(losses if sample_weight is None else losses * sample_weight)


digits = dp.data.load("digits")
x = digits.x_train.reshape(-1, 64).astype("float32") / digits.scale

model = VAE()
model.compile(
    dp.DPAdam.for_budget(
        epsilon=3,
        num_examples=len(x),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.01,
    )
)
history = model.fit(
    dp.poisson_batches(x, np.zeros(len(x)), batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
losses = history["loss"]
print(
    f"loss {losses[0]:.1f} -> {losses[-1]:.1f} at epsilon {history['epsilon'][-1]:.2f}"
)
