"""Sequence to sequence: an encoder and a decoder, one loss for each *sequence*.

The loss of a sequence is the mean over its tokens. The task: write a number backwards.
"""

import keras
import numpy as np
from keras import ops

import keras_dp_ext as dp

DIGITS, LENGTH, EPOCHS, BATCH = 6, 4, 20, 250
START = DIGITS

rng = np.random.default_rng(0)
source = rng.integers(0, DIGITS, [5000, LENGTH])
target = source[:, ::-1]
# The decoder is given what it should have written so far.
given = np.concatenate([np.full([len(target), 1], START), target[:, :-1]], axis=1)

inputs = {
    "source": keras.Input([LENGTH], dtype="int32", name="source"),
    "given": keras.Input([LENGTH], dtype="int32", name="given"),
}
embedding = keras.layers.Embedding(DIGITS + 1, 16)
encoded, state = keras.layers.GRU(32, return_sequences=True, return_state=True)(
    embedding(inputs["source"])
)
decoded = keras.layers.GRU(32, return_sequences=True)(
    embedding(inputs["given"]), initial_state=state
)
attended = keras.layers.MultiHeadAttention(2, 16)(decoded, encoded)
logits = keras.layers.Dense(DIGITS)(keras.layers.Concatenate()([decoded, attended]))
model = keras.Model(inputs, logits)


def per_sequence(tokens, logits):
    losses = ops.sparse_categorical_crossentropy(tokens, logits, from_logits=True)
    return ops.mean(losses, axis=-1)


model.compile(
    dp.DPAdam.for_budget(
        epsilon=8,
        num_examples=len(source),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=0.02,
    ),
    per_sequence,
    weighted_metrics=["accuracy"],
)
history = model.fit(
    dp.poisson_batches({"source": source, "given": given}, target, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
print(
    f"{history['accuracy'][-1]:.0%} of the tokens at epsilon {history['epsilon'][-1]:.2f}"
)
