"""Noise never repeats: not with a seed, a fork, a restore or a second trace."""

import os
import signal
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import dense_model, flat

import keras_dp_ext as dp

ZERO = np.zeros((8, 4), "float32"), np.zeros((8, 1), "float32")


def pure_noise(**arguments):
    """A model whose gradients are zero: every update is nothing but noise."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(16, use_bias=False),
            keras.layers.Dense(16, use_bias=False),
            keras.layers.Dense(1, use_bias=False),
        ]
    )
    model.compile(
        dp.optimizers.DPSGD(learning_rate=1.0, expected_batch_size=1, **arguments),
        loss="mse",
        jit_compile=False,
    )
    return model


def draw(model, batch=8):
    before = flat(model)
    model.train_on_batch(ZERO[0][:batch], ZERO[1][:batch])
    return flat(model) - before


@pytest.mark.parametrize("secure_noise", [False, True])
def test_noise_is_fresh_whatever_happens(secure_noise, tmp_path):
    draws = []
    for _ in range(2):
        # The global seed is the same both times.
        model = pure_noise(secure_noise=secure_noise)
        draws += [draw(model), draw(model)]
    model.save_weights(tmp_path / "w.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    path = checkpoint.save(tmp_path / "checkpoint")
    draws.append(draw(model))
    model.load_weights(tmp_path / "w.weights.h5")
    draws.append(draw(model))
    checkpoint.restore(path)
    draws.append(draw(model))
    draws.append(draw(model, batch=4))  # Another trace.
    model.make_train_function(force=True)
    draws.append(draw(model))
    clone = model.optimizer.from_config(model.optimizer.get_config())
    model.compile(clone, loss="mse", jit_compile=False)
    with pytest.warns(UserWarning, match="trained by another private optimizer"):
        draws.append(draw(model))
    correlations = np.corrcoef(np.stack(draws))[np.triu_indices(len(draws), 1)]
    # 336 coordinates: independent draws stay within 6 / sqrt(336).
    assert np.abs(correlations).max() < 0.33


@pytest.mark.parametrize("secure_noise", [False, True])
def test_variables_and_coordinates_have_noise_of_their_own(secure_noise):
    noise = draw(pure_noise(secure_noise=secure_noise))
    assert len(np.unique(noise)) == len(noise)
    first, second = noise[64:192], noise[192:320]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.5


def test_a_restored_process_does_not_replay_the_noise_of_the_checkpoint(tmp_path):
    model = pure_noise()
    model.save_weights(tmp_path / "w.weights.h5")
    replayed = []
    for _ in range(2):
        model = pure_noise()
        model.optimizer.build(model.trainable_variables)
        model.load_weights(tmp_path / "w.weights.h5")
        replayed.append(draw(model))
    assert abs(np.corrcoef(*replayed)[0, 1]) < 0.33


def _in_child(function) -> bytes:
    """What `function` returns in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.write(write, function())
        os._exit(0)
    os.close(write)
    try:
        return os.read(read, 1 << 16)
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize("secure_noise", [False, True])
def test_a_forked_child_has_a_key_of_its_own(secure_noise):
    source = pure_noise(secure_noise=secure_noise).optimizer._noise_source.value
    keys = [source._key.numpy().tobytes()]
    keys += [_in_child(lambda: source._key.numpy().tobytes()) for _ in range(2)]
    assert len(set(keys)) == 3
    assert len(keys[1]) == (32 if secure_noise else 8)


def test_a_fork_during_training_does_not_hang():
    # TensorFlow's locks may be taken by the training thread at that very moment.
    model = dense_model()
    model.compile(dp.optimizers.DPSGD(), loss="mse", jit_compile=False)
    x, y = np.zeros((512, 4), "float32"), np.zeros((512, 1), "float32")
    stop = threading.Event()

    class UntilStopped(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = stop.is_set()

    trainer = threading.Thread(
        target=lambda: model.fit(
            x, y, batch_size=8, epochs=10**6, verbose=0, callbacks=[UntilStopped()]
        )
    )
    trainer.start()
    try:
        while int(model.optimizer.iterations.numpy()) == 0:
            time.sleep(0.1)
        for _ in range(20):
            assert _in_child(lambda: b"alive") == b"alive"
    finally:
        stop.set()
        trainer.join()


def test_an_explicit_seed_means_the_same_noise_on_every_device_and_compiler():
    draws = []
    for device in ("CPU:0", "CPU:1"):
        for jit_compile in (False, True):
            with tf.device(device):
                seed = tf.constant([1, 2])
                sample = tf.function(
                    lambda seed: dp.noise.Gaussian().sample([1000], seed),
                    jit_compile=jit_compile,
                )
                draws.append(sample(seed).numpy())
    for other in draws[1:]:
        np.testing.assert_allclose(draws[0], other, rtol=1e-4, atol=1e-6)
