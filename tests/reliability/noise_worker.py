"""Records the noise of every release, for `test_noise_of_replicas.py`.

One of several workers if `TF_CONFIG` says so, else one process with the number of
replicas that `REPLICAS` says. All rows are zeros, so that an update is noise and nothing
else. Between releases the training is attacked: by forks, restored weights, another `fit`.
"""

import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

BATCH = 8
ROWS = np.zeros([40, 500], "float32"), np.zeros([40, 1], "float32")


def make_strategy():
    count = int(os.environ.get("REPLICAS", "0"))
    if not count:
        # Before anything else starts TensorFlow: it opens the worker's port.
        return tf.distribute.MultiWorkerMirroredStrategy()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(count)])


STRATEGY = make_strategy()

import keras  # noqa: E402

import keras_dp_ext as dp  # noqa: E402

INDEX = STRATEGY.cluster_resolver.task_id if STRATEGY.cluster_resolver else 0


def compiled(name: str, **arguments) -> keras.Model:
    keras.utils.set_random_seed(0)
    with STRATEGY.scope():
        model = keras.Sequential(
            [keras.Input([500]), keras.layers.Dense(1, use_bias=False)]
        )
        optimizer = getattr(dp.optimizers, name)(
            learning_rate=1.0, noise_multiplier=1.0, **arguments
        )
        model.compile(optimizer, "mse")
    return model


class Noise(keras.callbacks.Callback):
    """Collects what each release adds, in multiples of the bound."""

    def __init__(self, found: list, accumulation: int = 1):
        super().__init__()
        self.found, self.accumulation = found, accumulation

    def on_train_begin(self, logs=None):
        self.before = np.ravel(self.model.get_weights()[0])

    def on_train_batch_end(self, batch, logs=None):
        now = np.ravel(self.model.get_weights()[0])
        moved = BATCH * (self.before - now)
        if (batch + 1) % self.accumulation == 0:
            self.found.append(moved)
        else:
            assert not moved.any(), "noise in the middle of a lot"
        self.before = now


def lots_of(cycle: int = 1, accumulation: int = 1) -> tf.data.Dataset:
    return dp.data.cyclic_poisson_batches(
        *ROWS,
        batch_size=BATCH,
        cycle=cycle,
        steps_per_epoch=3,
        accumulation_steps=accumulation,
    )


def fit(model: keras.Model, found: list, lots=None, accumulation: int = 1) -> None:
    lots = lots_of() if lots is None else lots
    model.fit(lots, verbose=0, callbacks=[Noise(found, accumulation)])


def fork_here() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def attacked(path: str, name: str, **arguments) -> np.ndarray:
    """The noise of 15 releases with an attack after each third of them, and of 6 more."""
    found: list[np.ndarray] = []
    model = compiled(name, **arguments)
    fit(model, found)
    fit(model, found)
    if INDEX == 0:
        fork_here()
    fit(model, found)
    if INDEX > 0:
        fork_here()
    fit(model, found)
    saved = f"{path}.weights.h5"
    model.save_weights(saved)
    for restored in (model, compiled(name, **arguments)):
        restored.load_weights(saved)
        fit(restored, found)
    fit(compiled(name, **arguments), found)
    return np.stack(found)


def main(path: str) -> None:
    found = {
        "DPSGD": attacked(path, "DPSGD"),
        "DPSGD, secure": attacked(path, "DPSGD", secure_noise=True),
    }
    halves: list[np.ndarray] = []
    model = compiled("DPSGD", gradient_accumulation_steps=2)
    fit(model, halves, lots_of(accumulation=2), 2)
    # Correlated noise is the same function of its draws, whoever forked between fits.
    runs: list[np.ndarray] = []
    model = compiled("BandMFSGD", bands=3, steps=9)
    lots = lots_of(cycle=3)
    for _ in range(3):
        fit(model, runs, lots)
        if INDEX == 0:
            fork_here()
    found |= {"lots": np.stack(halves), "runs": np.stack(runs)}
    np.savez(path, **found)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1])))
