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


def pytest_configure(config):
    """Two CPU devices for replicas: must be told before any TensorFlow op runs."""
    if getattr(config.option, "numprocesses", None) and not hasattr(
        config, "workerinput"
    ):
        return  # The process that only distributes tests.
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "mirrored" in getattr(item, "fixturenames", ()):
            item.add_marker("replicas")


@pytest.fixture(scope="session")
def mirrored():
    """Two replicas, one strategy for all tests of a process.

    TensorFlow numbers the collectives of every strategy from the start: those of two
    strategies on the same devices can meet, and wait for ever.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
