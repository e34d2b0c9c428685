"""What has passed is not verified again, and only that."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients import registry
from keras_dp_ext.verification import probe

L = keras.layers

X = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
Y = np.zeros((8, 3), "float32")


@pytest.fixture(autouse=True)
def probes(monkeypatch):
    """Counts the probes that run."""
    counted = []
    passes = probe.Probe._passes

    def count(self, *args):
        counted.append(self)
        return passes(self, *args)

    monkeypatch.setattr(probe.Probe, "_passes", count)
    monkeypatch.setattr(probe, "_passed", set())
    return counted


def fit(*layers, optimizer=None):
    model = keras.Sequential([keras.Input([5]), *layers, L.Dense(3)])
    model.compile(optimizer or dp.optimizers.DPSGD(), "mse", jit_compile=False)
    model.fit(X, Y, batch_size=8, verbose=0)
    return model


def test_a_second_fit_and_a_second_model_are_not_probed_again(probes):
    model = fit(L.Dense(4, activation="relu"))
    model.compile(dp.optimizers.DPSGD(), "mse", jit_compile=False)
    model.fit(X, Y, batch_size=8, verbose=0)
    fit(L.Dense(4, activation="relu", kernel_initializer="zeros"))
    fit(L.Dense(4, activation="relu"), optimizer=dp.optimizers.DPAdam())
    assert len(probes) == 1


def test_a_second_replica_is_not_probed_again(probes, mirrored):
    with mirrored.scope():
        model = keras.Sequential([keras.Input([5]), L.Dense(4), L.Dense(3)])
        model.compile(dp.optimizers.DPSGD(), "mse", jit_compile=False)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert len(probes) == 1


def scaled(factor):
    return L.Lambda(lambda x: x * factor)


class Inside(L.Layer):
    """A constant in a function that a loop calls."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        return tf.while_loop(
            lambda i, value: i < 2,
            lambda i, value: (i + 1, value * self.factor),
            [0, x],
        )[1]


class Captured(L.Layer):
    """A constant that the graph captures from outside."""

    def __init__(self, factor):
        super().__init__()
        with tf.init_scope():
            self.factor = tf.constant([factor] * 5)

    def call(self, x):
        return x * self.factor


@pytest.mark.parametrize("layer", [scaled, Inside, Captured])
def test_one_other_constant_is_probed_again(layer, probes):
    fit(layer(2.0))
    fit(layer(2.0))
    assert len(probes) == 1
    fit(layer(3.0))
    assert len(probes) == 2


def test_other_shapes_are_probed_again(probes):
    fit(L.Dense(4))
    fit(L.Dense(6))
    assert len(probes) == 2


def test_a_rule_that_becomes_wrong_is_caught_in_a_model_that_has_passed(monkeypatch):
    fit(L.Dense(4))
    rule = registry.find_rule("MatMul")
    monkeypatch.setitem(
        registry._RULES, "MatMul", lambda use, d, split: rule(use, 1.01 * d, split)
    )
    with pytest.raises(ValueError, match="are wrong"):
        fit(L.Dense(4))


def test_what_failed_is_not_kept():
    for _ in range(2):
        with pytest.raises(ValueError, match="mixes the examples"):
            fit(L.Lambda(lambda x: x - tf.reduce_mean(x, axis=0)))


def test_weights_that_hide_a_wrong_rule_hide_nothing(monkeypatch):
    """Behind zeros every gradient agrees; the verdict must not rest on them."""
    rule = registry.find_rule("MatMul")
    monkeypatch.setitem(
        registry._RULES, "MatMul", lambda use, d, split: rule(use, 1.01 * d, split)
    )
    zeros = [L.Dense(4, kernel_initializer="zeros") for _ in range(3)]
    with pytest.raises(ValueError, match="are wrong"):
        fit(*zeros)


@pytest.mark.parametrize(
    "name",
    [
        "DPSGD",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("DirectionalSGD", "TanhSGD", "EncodedSGD")
        ),
    ],
)
def test_no_warning_of_retracing_reaches_the_user(name, caplog):
    for width in range(3, 10):
        fit(L.Dense(width), optimizer=getattr(dp.optimizers, name)())
    said = [record.getMessage() for record in caplog.records]
    # Keras' own function is retraced by plain Keras, too: these are seven models.
    of_keras = "TensorFlowTrainer._make_function"
    assert not [one for one in said if "retracing" in one and of_keras not in one]
