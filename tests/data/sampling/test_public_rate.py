"""A public sampling rate: nothing that is visible depends on the number of examples."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting import Poisson
from keras_dp_ext.accounting import sampling as samplings
from keras_dp_ext.accounting.default_delta import default_delta
from keras_dp_ext.data.sampling.capacity import overflow_delta
from tests.numpy_batches import numpy_batches


def lots_of(size, **arguments):
    arguments = {"batch_size": 60, "sampling_rate": 0.05, **arguments}
    return dp.data.poisson_batches(
        np.ones([size, 3], np.float32), np.ones([size, 1], np.float32), **arguments
    )


def test_neighbours_have_the_same_lots_from_outside():
    first, second = lots_of(1000), lots_of(1001)
    assert first.dp_sampling == second.dp_sampling
    assert first.element_spec == second.element_spec
    assert len(first) == len(second) == 20
    # By N they differ: this is what a public rate is for.
    others = [lots_of(n, sampling_rate=None).dp_sampling for n in (1000, 1001)]
    assert others[0] != others[1]


def test_overflow_is_bounded_for_every_size_that_is_allowed():
    lots = lots_of(1200)
    label, capacity = lots.dp_sampling, lots.element_spec[2].shape[0]
    for size in (1, 1000, 1199, 1200):
        bound = overflow_delta(size, 0.05, capacity)
        assert bound <= label.sampling.overflow_delta <= 1e-12


def test_lots_are_drawn_at_the_public_rate():
    lots = lots_of(400, steps_per_epoch=500, seed=3)
    sizes = [float(np.sum(weight)) for _, _, weight in numpy_batches(lots)]
    # Binomial(400, 0.05): the mean of 500 has standard deviation 0.195.
    assert np.mean(sizes) == pytest.approx(20.0, abs=1.0)
    assert np.var(sizes) == pytest.approx(19.0, rel=0.3)


def test_more_examples_than_the_public_bound_are_refused_without_telling():
    with pytest.raises(ValueError, match="at least `sampling_rate` times") as error:
        lots_of(1201)
    assert "1201" not in str(error.value)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_the_rate_must_be_one(rate):
    with pytest.raises(ValueError, match="Argument `sampling_rate` must be"):
        lots_of(10, sampling_rate=rate)


def test_where_the_rate_follows_from_the_size_adjacency_is_zero_out():
    sampling = lots_of(1000, sampling_rate=None).dp_sampling.sampling
    assert sampling.adjacency.startswith("zero-out") and "public" in sampling.adjacency
    assert samplings.get(sampling.serialize()).adjacency == sampling.adjacency
    # A ledger that was written before says nothing.
    old = {"class_name": "Poisson", "config": {"rate": 0.1, "overflow_delta": 0.0}}
    assert samplings.get(old) == Poisson(0.1)


@pytest.mark.parametrize("rate", [None, 0.05])
def test_fit_states_the_adjacency_and_takes_delta_from_what_is_public(rate):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=4.0), loss="mse")
    accountant = dp.callbacks.PrivacyAccountant()
    # 999 and 1200 have different default deltas.
    model.fit(lots_of(999, sampling_rate=rate), verbose=0, callbacks=[accountant])
    text = " ".join(accountant.statement().split())
    if rate is None:
        assert "Adjacency: zero-out" in text and "is public)" in text
        assert f", {default_delta(999):g})-differentially" in text
    else:
        assert "Adjacency: add or remove one example." in text
        assert f", {default_delta(1200):g})-differentially" in text


def test_one_release_that_needs_a_public_number_limits_the_whole_statement():
    """Adapting a layer holds whoever joins, the training after it does not."""
    x = np.random.default_rng(0).normal(size=[999, 3]).astype(np.float32)
    normalization = dp.data.PrivateNormalization(noise_multiplier=4.0)
    normalization.adapt(x)
    model = keras.Sequential([keras.Input([3]), normalization, keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=4.0), loss="mse")
    accountant = dp.callbacks.PrivacyAccountant()
    model.fit(lots_of(999, sampling_rate=None), verbose=0, callbacks=[accountant])
    text = " ".join(accountant.statement().split())
    assert "the full data set in every release" in text
    assert "Adjacency: zero-out" in text and "add or remove" not in text
