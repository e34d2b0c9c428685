"""Small models and measurements that the reliability tests share."""

from __future__ import annotations

import keras
import numpy as np

import keras_dp_ext as dp


def data(examples: int = 32, features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(examples, features)).astype("float32")
    return x, 2.0 * x[:, :1]


def dense_model(features: int = 4, outputs: int = 1, seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input([features]),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.Dense(outputs),
        ]
    )


def silent(name: str = "DPSGD", **arguments) -> keras.optimizers.Optimizer:
    """An optimizer whose update is the bounded sum itself, times -1."""
    arguments = {"learning_rate": 1.0, "expected_batch_size": 1, **arguments}
    if name == "EncodedSGD":
        arguments.update(noise=dp.noise.Gaussian(scale=1e-12), denoise=None)
    else:
        arguments.update(noise_multiplier=0.0)
    return getattr(dp.optimizers, name)(**arguments)


def update(model: keras.Model, x, y, **arguments) -> np.ndarray:
    """By how much one batch moves the weights, as one vector."""
    before = flat(model)
    model.train_on_batch(x, y, **arguments)
    return flat(model) - before


def flat(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).astype(float)
