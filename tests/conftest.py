"""Fixtures for all tests: quiet, seeded, with two logical devices."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis
import numpy as np
import pytest

# The same examples in every run, unless one searches for new ones (`make test-full`).
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("search", print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session", autouse=True)
def two_logical_devices():
    """Distribution is tested on two CPU devices; must precede any TensorFlow op."""
    import tensorflow as tf

    try:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    except RuntimeError:
        pass  # TensorFlow has started already.


@pytest.fixture(scope="session")
def mirrored():
    """Two replicas, one strategy for all tests of a process.

    TensorFlow numbers the collectives of every strategy from the start: those of two
    strategies on the same devices can meet, and wait for ever.
    """
    import tensorflow as tf

    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("TensorFlow started with one device")
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
