"""Segmentation: a small U-Net, with a Dice loss for each *image*.

A Dice loss of the whole batch divides sums of all images by each other, and is refused.
"""

import keras
import numpy as np
from keras import layers, ops

import keras_dp_ext as dp

SIZE, EPOCHS, BATCH = 16, 10, 100


def dice_and_crossentropy(y_true, logits):
    """One loss for each image: sums run over all axes but the first."""
    y_true = ops.cast(y_true, logits.dtype)
    mask = ops.sigmoid(logits)
    both = ops.sum(y_true * mask, axis=(1, 2, 3))
    total = ops.sum(y_true + mask, axis=(1, 2, 3))
    crossentropy = ops.binary_crossentropy(y_true, logits, from_logits=True)
    return 1 - (2 * both + 1) / (total + 1) + ops.mean(crossentropy, axis=(1, 2, 3))


def convolution(x, filters):
    x = layers.Conv2D(filters, 3, padding="same")(x)
    return layers.Activation("tanh")(layers.GroupNormalization(4)(x))


rng = np.random.default_rng(0)
rows, columns = np.mgrid[:SIZE, :SIZE]
centres = rng.uniform(4, SIZE - 4, [2, 2000, 1, 1])
radii = rng.uniform(2, 4, [2000, 1, 1])
masks = (rows - centres[0]) ** 2 + (columns - centres[1]) ** 2 < radii**2
images = (masks + rng.normal(0, 0.7, masks.shape)).astype("float32")[..., None]
masks = masks[..., None].astype("float32")

inputs = keras.Input([SIZE, SIZE, 1])
fine = convolution(inputs, 8)
coarse = convolution(layers.MaxPooling2D()(fine), 16)
joined = layers.Concatenate()([layers.UpSampling2D()(coarse), fine])
model = keras.Model(inputs, layers.Conv2D(1, 1)(convolution(joined, 8)))
model.compile(
    dp.DPAdam.for_budget(
        epsilon=3,
        num_examples=len(images),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.01,
    ),
    dice_and_crossentropy,
    weighted_metrics=[keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
)
history = model.fit(
    dp.poisson_batches(images, masks, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
print(
    f"{history['accuracy'][-1]:.1%} of the pixels at epsilon {history['epsilon'][-1]:.2f}"
)
