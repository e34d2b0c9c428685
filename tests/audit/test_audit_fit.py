"""The audit through `fit` finds what breaks a claim, and says what it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.bounding.l2_clip import L2Clip
from keras_dp_ext.mechanisms import DPSGD
from keras_dp_ext.optimizers import noise_source, padding

ROWS, LOT = 22, 6


def data():
    x = np.random.default_rng(0).normal(size=[ROWS, 3]).astype("float32")
    return x, x[:, :1]


def fit(optimizer, x, y, model=None, **arguments):
    model = model or keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(
        dp.data.poisson_batches(x, y, batch_size=LOT),
        verbose=0,
        callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-2)],
        **arguments,
    )
    return model


def audit(train, examples=("huge",), **arguments):
    return dp.audit.audit_fit(train, data(), examples=examples, **arguments)


def test_every_kind_of_example_stays_within_the_claim_of_plain_training():
    found = dp.audit.audit_fit(
        lambda x, y: fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y), data()
    )
    assert found.within_claim
    assert found.shift == pytest.approx(1.0, rel=1e-4)
    assert found.examples == (
        *("twin", "huge", "opposed", "overflowing"),
        *("tiny", "not a number", "infinite"),
    )
    assert found.releases == found.participations == found.lots == 4
    assert str(found).startswith("within its claim")


def test_data_whose_lots_would_change_with_one_more_row_are_an_error_of_the_caller():
    rows = 20  # An epoch has three lots of 6, and with one more row four.
    with pytest.raises(ValueError, match="must have another number of rows"):
        dp.audit.audit_fit(
            lambda x, y: fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y),
            [array[:rows] for array in data()],
            examples=["huge"],
        )


class Unclipped(DPSGD):
    """Clips to three times of what it claims."""

    def bound(self, gradients):
        return L2Clip(3 * self.l2_norm_clip).sum(gradients)


def test_a_clip_norm_that_is_not_the_claimed_one_is_measured():
    optimizer_class = dp.optimizers.make_private(keras.optimizers.SGD, Unclipped)
    found = audit(lambda x, y: fit(optimizer_class(learning_rate=0.1), x, y))
    assert not found.within_claim
    assert found.shift == pytest.approx(3.0, rel=1e-3)
    assert '"huge" moves a release by 3' in str(found)


def test_padding_that_counts_is_found(monkeypatch):
    monkeypatch.setattr(padding, "masked_losses", lambda losses, mask: losses)

    class Forgets(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return tf.reduce_mean(tf.square(y + 3.0 - y_pred)[:, 0])

    def train(x, y):
        inputs = keras.Input([3])
        model = Forgets(inputs, keras.layers.Dense(1)(inputs))
        return fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y, model)

    found = audit(train, examples=["opposed", "huge"])
    assert found.shift > 1.3
    assert not found.within_claim


def test_what_is_left_in_a_variable_is_found():
    def train(x, y):
        model = fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y)
        model.layers[0].bias.assign([np.sum(np.abs(x))])
        return model

    found = audit(train)
    assert found.shift <= 1.001
    assert any("bias" in name for name in found.leaks)
    assert "depends on the example beside all releases" in str(found)


def test_releases_that_no_ledger_has_are_found():
    def train(x, y):
        first = fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y)
        fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y)
        return first

    found = audit(train)
    assert (found.releases, found.accounted.releases) == (8, 4)
    assert "8 releases were made and 4 are in the ledger" in str(found)


def test_noise_that_comes_again_is_found(monkeypatch):
    monkeypatch.setattr(
        noise_source.NoiseSource, "seed", lambda self: tf.constant([1, 2])
    )
    found = audit(lambda x, y: fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y))
    assert found.reasons == ("two releases have the same noise",)


def test_an_error_that_only_one_example_causes_is_found():
    def train(x, y):
        if np.any(np.abs(x) > 100):
            raise RuntimeError("That cannot be right.")
        return fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y)

    found = audit(train)
    assert 'fails with the example "huge"' in str(found)


def test_a_training_that_differs_by_itself_is_told_from_one_that_leaks():
    draws = iter(range(100))

    def train(x, y):
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(dp.optimizers.DPSGD(learning_rate=0.1), "mse")
        order = np.random.Generator(np.random.PCG64(next(draws))).permutation(len(x))
        model.fit(
            *(x[order], y[order]),
            **{"batch_size": LOT, "shuffle": False, "verbose": 0},
            callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )
        return model

    found = audit(train, adjacency="zero-out")
    assert not found.within_claim
    assert "differs from run to run" in str(found)


def test_the_kind_of_neighbours_is_found_out():
    def arrays(x, y):
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(dp.optimizers.DPSGD(learning_rate=0.1), "mse")
        model.fit(
            *(x, y),
            **{"batch_size": LOT, "verbose": 0, "epochs": 2},
            callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )
        return model

    found = audit(arrays)
    assert found.adjacency == "zero-out"
    assert (found.participations, found.accounted.participations) == (2, 2)
    assert found.within_claim


def test_errors_of_the_training_itself_are_passed_on():
    with pytest.raises(ZeroDivisionError):
        audit(lambda x, y: 1 / 0)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="adjacency"):
        audit(lambda x, y: None, adjacency="swap")
    with pytest.raises(ValueError, match="examples"):
        audit(lambda x, y: None, examples=["enormous"])
    with pytest.raises(ValueError, match="private"):
        audit(lambda x, y: keras.Sequential([]), adjacency="remove")
    with pytest.raises(ValueError, match="max_releases"):
        audit(
            lambda x, y: fit(dp.optimizers.DPSGD(learning_rate=0.1), x, y),
            max_releases=2,
        )


def test_tokens_and_labels_without_floats_need_a_null_example():
    x = np.arange(ROWS) % 5
    with pytest.raises(ValueError, match="null"):
        dp.audit.audit_fit(lambda x, y: None, (x, x), adjacency="zero-out")
    assert set(dp.audit.worst_examples((x, x))) == {"twin", "least", "greatest"}
