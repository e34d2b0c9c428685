"""Noise never repeats: not with a seed, a fork, a restore or a second trace."""

import json
import pathlib
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from reliability_models import flat

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


def test_a_renewed_stream_never_comes_back_to_a_number_it_has_used():
    # A step of another thread may fall between the new key and anything else.
    source = pure_noise().optimizer._noise_source
    assert [int(source.take_number()) for _ in range(3)] == [0, 1, 2]
    source.renew()
    assert int(source.take_number()) == 3


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("secure_noise", [False, True])
def test_threads_that_train_with_one_optimizer_draw_noise_of_their_own(
    secure_noise, jit_compile
):
    source = pure_noise(secure_noise=secure_noise).optimizer._noise_source

    @tf.function(jit_compile=jit_compile)
    def step():
        # The work behind a draw is what gives the other thread its chance.
        seed = source.seed()
        return seed, tf.random.stateless_normal([20_000], seed)

    step()
    draws: list[tuple[int, ...]] = []

    def train():
        for _ in range(150):
            draws.append(tuple(step()[0].numpy().tolist()))

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(draws) == len(set(draws)) == 450


# Forks happen in a process of their own: a child that hung would keep the pipes of
# this one open, and the whole test run with it.
FORKED = pathlib.Path(__file__).with_name("forked_training.py")


def forked(what, *arguments):
    done = subprocess.run(
        [sys.executable, FORKED, what, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("noise", ["fast", "secure"])
def test_after_a_fork_nobody_draws_what_another_draws(noise):
    parent, children, training = forked("keys", noise)
    # A child that does not train touches nothing, and the parent goes elsewhere.
    assert children == [parent[0], parent[2]]
    assert len({tuple(key) for key in parent}) == len(parent) == 5
    # One that trains has a stream of its own: another thread of the parent may have
    # drawn from the old one after the fork.
    assert len({tuple(key) for key in [*parent, *training]}) == 7
    assert len(parent[0]) == (8 if noise == "secure" else 2)


def test_a_fork_during_training_does_not_hang():
    # TensorFlow's locks may be taken by the training thread at that very moment.
    assert forked("while training") == ["alive"] * 100


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
