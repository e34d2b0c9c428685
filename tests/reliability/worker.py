"""One of two workers of `test_replicas.py`: trains, and writes what it ended with."""

import sys

import numpy as np
import tensorflow as tf

# Before anything else starts TensorFlow: the strategy opens the worker's port.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()

import test_replicas  # noqa: E402


def main(path: str) -> None:
    results = {}
    for name in ("DPSGD", "EncodedSGD"):
        model = test_replicas.train(name, STRATEGY, noise_seed=5)
        results[name] = np.concatenate([np.ravel(w) for w in model.get_weights()])
        results[f"{name} releases"] = int(model.optimizer.releases.numpy())
    np.savez(path, **results)


if __name__ == "__main__":
    main(sys.argv[1])
