"""Siamese pairs: one *pair* is one example, with a contrastive loss of its own.

Pairs are made once, so that every image is in one pair only: then epsilon is about images,
too. Losses over all pairs of a batch (InfoNCE) mix the examples, and are refused.
"""

import keras
import numpy as np
from keras import layers, ops

import keras_dp_ext as dp

EPOCHS, BATCH = 25, 100

digits = dp.data.load("digits")
x, y = digits.x_train / digits.scale, digits.y_train
# Half of the pairs show the same digit: sorted by label, neighbours are alike.
order = np.argsort(y, kind="stable").reshape(-1, 2)
rng = np.random.default_rng(0)
swapped = rng.permutation(len(order))[: len(order) // 2]
order[swapped, 1] = order[rng.permutation(swapped), 1]
left, right = x[order[:, 0]], x[order[:, 1]]
same = (y[order[:, 0]] == y[order[:, 1]]).astype("float32")[:, None]

encoder = keras.Sequential(
    [
        keras.Input(x.shape[1:]),
        layers.Conv2D(16, 3, activation="tanh"),
        layers.Flatten(),
        layers.Dense(8),
    ]
)
inputs = [keras.Input(x.shape[1:]), keras.Input(x.shape[1:])]
difference = encoder(inputs[0]) - encoder(inputs[1])
distance = ops.sqrt(ops.sum(ops.square(difference), axis=1, keepdims=True) + 1e-6)
model = keras.Model(inputs, distance)


def contrastive(same, distance):
    apart = ops.square(ops.maximum(1.0 - distance, 0.0))
    return ops.mean(same * ops.square(distance) + (1 - same) * apart, axis=-1)


def accuracy(same, distance):
    return ops.cast(ops.equal(same > 0.5, distance < 0.5), "float32")


model.compile(
    dp.DPAdam.for_budget(
        epsilon=3,
        num_examples=len(same),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.005,
    ),
    contrastive,
    weighted_metrics=[accuracy],
)
history = model.fit(
    dp.poisson_batches((left, right), same, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
print(f"accuracy {history['accuracy'][-1]:.0%} at epsilon {history['epsilon'][-1]:.2f}")
