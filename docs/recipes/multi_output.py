"""Two outputs, two losses: the gradient of an example is that of their sum."""

import keras

import keras_dp_ext as dp

EPOCHS, BATCH = 20, 128

digits = dp.data.load("digits")
x = digits.x_train / digits.scale
labels = {"digit": digits.y_train, "odd": (digits.y_train % 2).astype("float32")}

inputs = keras.Input(x.shape[1:])
hidden = keras.layers.Conv2D(16, 3, activation="tanh")(inputs)
hidden = keras.layers.Flatten()(hidden)
model = keras.Model(
    inputs,
    {
        "digit": keras.layers.Dense(10, name="digit")(hidden),
        "odd": keras.layers.Dense(1, name="odd")(hidden),
    },
)
model.compile(
    dp.DPSGD.for_budget(
        epsilon=3,
        num_examples=len(x),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=1.0,
    ),
    loss={
        "digit": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "odd": keras.losses.BinaryCrossentropy(from_logits=True),
    },
    loss_weights={"digit": 1.0, "odd": 0.5},
    weighted_metrics={
        "digit": ["accuracy"],
        "odd": [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
    },
)
history = model.fit(
    dp.poisson_batches(x, {k: v[:, None] for k, v in labels.items()}, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
print(
    f"digit {history['digit_accuracy'][-1]:.0%}, odd {history['odd_accuracy'][-1]:.0%} "
    f"at epsilon {history['epsilon'][-1]:.2f}"
)
