"""One of two workers of `test_replicas.py`: trains, and writes what it ended with.

In a loop of its own; `fit_worker.py` trains with `fit`.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

# Before anything else starts TensorFlow: the strategy opens the worker's port.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import keras  # noqa: E402
from test_replicas import CASES, batches, dense_model  # noqa: E402

import keras_dp_ext as dp  # noqa: E402


def train(name: str) -> tuple[np.ndarray, int]:
    with STRATEGY.scope():
        model = dense_model()
        optimizer = getattr(dp.optimizers, name)(
            learning_rate=0.1, noise_seed=5, expected_batch_size=16, **CASES[name]
        )
        optimizer.build(model.trainable_variables)

    def step(x, y):
        losses = keras.losses.mean_squared_error(y, model(x, training=True))
        optimizer.minimize(losses, model.trainable_variables)

    @tf.function
    def global_step(batch):
        STRATEGY.run(step, args=batch)

    for batch in STRATEGY.experimental_distribute_dataset(batches()):
        global_step(batch)
    weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
    return weights, int(optimizer.releases.numpy())


def main(path: str) -> None:
    results = {}
    for name in ("DPSGD", "EncodedSGD"):
        results[name], results[f"{name} releases"] = train(name)
    np.savez(path, **results)


if __name__ == "__main__":
    main(sys.argv[1])
