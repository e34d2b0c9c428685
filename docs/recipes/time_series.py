"""A forecast from time series of many people: one *series* is one example.

Windows that are cut from one long series overlap, and a person's days would be in many of
them. So every example is all that is known of one person: twelve weeks of steps taken, to
forecast the four weeks that follow.
"""

import keras
import numpy as np

import keras_dp_ext as dp

PAST, FUTURE, EPOCHS, BATCH = 12, 4, 15, 200

rng = np.random.default_rng(0)
weeks = np.arange(PAST + FUTURE)
level = rng.normal(0, 1, [4000, 1])
trend = rng.normal(0, 0.1, [4000, 1])
phase = rng.uniform(0, 2 * np.pi, [4000, 1])
series = level + trend * weeks + np.sin(weeks * np.pi / 4 + phase)
series = (series + rng.normal(0, 0.1, series.shape)).astype("float32")
x, y = series[:, :PAST, None], series[:, PAST:]

model = keras.Sequential(
    [
        keras.Input([PAST, 1]),
        keras.layers.LSTM(16),
        keras.layers.Dense(FUTURE),
    ]
)
model.compile(
    dp.DPAdam.for_budget(
        epsilon=3,
        num_examples=len(x),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.02,
    ),
    "mse",
    weighted_metrics=["mae"],
)
history = model.fit(
    dp.poisson_batches(x, y, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
print(
    f"mean error {history['mae'][-1]:.2f} (first epoch {history['mae'][0]:.2f}) "
    f"at epsilon {history['epsilon'][-1]:.2f}"
)
