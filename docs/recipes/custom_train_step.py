"""A `train_step` of your own: `scale_loss` inside the tape is all that is new.

The optimizer reads the gradient of each example off the loss that `scale_loss` was given; the
gradients of the tape, which are of the whole batch, are not used.
"""

import keras
import tensorflow as tf

import keras_dp_ext as dp

EPOCHS, BATCH = 20, 128


class Smoothed(keras.Model):
    """Trained on labels that are smoothed in the step itself."""

    def train_step(self, data):
        x, y, weight = data
        smooth = 0.9 * tf.one_hot(tf.cast(y, tf.int32), 10) + 0.01
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            losses = keras.losses.categorical_crossentropy(
                smooth, logits, from_logits=True
            )
            loss = tf.reduce_mean(weight * losses)
            loss = self.optimizer.scale_loss(loss)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, logits, sample_weight=weight)
        return self.get_metrics_result()


digits = dp.data.load("digits")
x = digits.x_train / digits.scale
inputs = keras.Input(x.shape[1:])
hidden = keras.layers.Conv2D(16, 3, activation="tanh")(inputs)
logits = keras.layers.Dense(10)(keras.layers.Flatten()(hidden))
model = Smoothed(inputs, logits)
model.compile(
    dp.DPSGD.for_budget(
        epsilon=3,
        num_examples=len(x),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=1.0,
    ),
    weighted_metrics=["sparse_categorical_accuracy"],
)
history = model.fit(
    dp.poisson_batches(x, digits.y_train, batch_size=BATCH),
    epochs=EPOCHS, verbose=0, callbacks=[dp.PrivacyAccountant()],
).history  # fmt: skip
accuracy = history["sparse_categorical_accuracy"][-1]
print(f"accuracy {accuracy:.0%} at epsilon {history['epsilon'][-1]:.2f}")
