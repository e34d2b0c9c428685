"""What runs of correlated noise cost, against dp_accounting and JAX-Privacy."""

import json

import dp_accounting
import numpy as np
import pytest

from keras_dp_ext import accounting
from keras_dp_ext.accounting import (
    Claim,
    CorrelatedRelease,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    Ledger,
    Poisson,
    Shuffled,
    Unknown,
    WithReplacement,
    accountants,
    composition,
    events,
    participation,
)
from keras_dp_ext.accounting.coverage import check_covered
from keras_dp_ext.accounting.sampling import get as samplings_get
from keras_dp_ext.noise import Banded, BufferedToeplitz, TreeAggregation
from keras_dp_ext.noise.correlated import toeplitz

# What jax_privacy 2.0.0 says (in an environment of its own), for
# DpsgdTrainingAccountant(PldAccountantConfig(1e-3)) at delta 1e-5 with 60,000 examples:
# noise multiplier, batch size, steps, cycle length, epsilon.
JAX_PRIVACY = [
    (2.5, 512, 1120, 16, 2.0374953220800465),
    (1.2, 600, 500, 4, 2.137743514347598),
]


@pytest.mark.parametrize(("sigma", "batch", "steps", "bands", "expected"), JAX_PRIVACY)
def test_amplified_bands_cost_what_jax_privacy_says(
    sigma, batch, steps, bands, expected
):
    run = CorrelatedRelease(sigma, Banded(bands, steps))
    sampling = CyclicPoisson(bands * batch / 60_000, cycle=bands)
    found = accountants.epsilon_pld([(run, sampling, steps)], 1e-5)
    assert found == pytest.approx(expected, rel=1e-3)


def test_strategy_and_sensitivity_are_those_of_jax_privacy():
    # toeplitz.optimize_banded_toeplitz and toeplitz.loss, n = 64 and 2000.
    assert toeplitz.mean_squared_error(Banded(4, 64).coefficients, 64) == pytest.approx(
        10.501446861055825, rel=1e-6
    )
    assert toeplitz.mean_squared_error(
        Banded(16, 2000).coefficients, 2000
    ) == pytest.approx(72.83988132609326, rel=1e-6)
    # toeplitz.minsep_sensitivity_squared with min_sep = 8, of their coefficients, which
    # are ours up to 5e-5.
    found = participation.every(Banded(16, 2000), 2000, 8) ** 2
    assert found == pytest.approx(482.8333827485426, rel=1e-3)


def test_a_fixed_order_is_one_gaussian_release():
    run = CorrelatedRelease(20.0, TreeAggregation())
    multiplier = 20.0 / participation.every(TreeAggregation(), 40, 10)
    expected = composition.gaussian_epsilon(multiplier, 1e-5, "exact")
    found = accountants.epsilon_pld([(run, FixedOrder(10), 40)], 1e-5)
    assert found == pytest.approx(expected, rel=1e-3)
    event = Claim(run).to_dp_event(FixedOrder(10), 40)
    accountant = dp_accounting.pld.PLDAccountant().compose(event)
    assert accountant.get_epsilon(1e-5) == pytest.approx(expected, rel=1e-3)


def test_epsilon_never_falls_with_the_number_of_releases():
    for noise, sampling in (
        (Banded(4, 50), CyclicPoisson(0.2, 5)),
        (Banded(4, 50), FixedOrder(6)),
        (BufferedToeplitz(2, 50), Shuffled(6, 0.1)),
        (TreeAggregation(), FixedOrder(6)),
        (TreeAggregation(), FullBatch()),
    ):
        run = CorrelatedRelease(4.0, noise)
        found = [accounting.epsilon([(run, sampling, n)], 1e-5) for n in range(0, 40)]
        assert found == sorted(found) and found[0] == 0 < found[1]


def test_two_runs_are_not_one_longer_run():
    ledger = Ledger()
    claim = Claim(CorrelatedRelease(4.0, TreeAggregation()))
    ledger.open(0, claim, FixedOrder(5))
    ledger.open(7, claim, FixedOrder(5))  # In the middle of a pass.
    entries = ledger.entries(total_releases=14)
    assert [count for _, _, count in entries] == [7, 7]
    found = ledger.epsilon(14, delta=1e-5, accountant="pld")
    sensitivity = np.sqrt(2) * participation.every(TreeAggregation(), 7, 5)
    expected = composition.gaussian_epsilon(4.0 / sensitivity, 1e-5, "exact")
    assert found == pytest.approx(expected, rel=1e-3)
    # Another pass of the same run is the same segment; another order is not.
    ledger = Ledger()
    ledger.open(0, claim, FixedOrder(5, order="a"))
    ledger.open(10, claim, FixedOrder(5, order="a"))
    ledger.open(20, claim, FixedOrder(5, order="b"))
    assert [count for _, _, count in ledger.entries(25)] == [20, 5]


def test_whoever_draws_noise_is_told_where_a_run_begins():
    told = []
    ledger = Ledger(lambda: 10, told.append)
    claim = Claim(CorrelatedRelease(4.0, TreeAggregation()))
    ledger.open(0, claim, FixedOrder(5))
    ledger.open(10, claim, FullBatch())  # As at the end of every `fit`.
    ledger.open(10, claim, FixedOrder(5))  # Nothing was released: the run goes on.
    assert told == [0, 10, 0]
    ledger.restore(Ledger.from_json(ledger.to_json()), 10)
    assert told[-1] == 10
    # Where a pass may be under way, shuffled data count in full.
    ledger = Ledger(lambda: 3)
    ledger.open(0, claim, Shuffled(5, 0.2))
    ledger.restore(Ledger.from_json(ledger.to_json()), 3)
    assert ledger.segments[-1].sampling == FullBatch()


def test_events_and_samplings_survive_json():
    run = CorrelatedRelease(1.5, Banded(3, 20, scale=7.0))
    assert run.noise.scale == 1.0
    assert events.get(json.loads(json.dumps(run.serialize()))) == run
    for sampling in (CyclicPoisson(0.2, 5, 1e-12, "g"), FixedOrder(7, "o")):
        assert samplings_get(json.loads(json.dumps(sampling.serialize()))) == sampling


@pytest.mark.parametrize(
    ("noise", "sampling", "remedy"),
    [
        (Banded(4, 20), Poisson(0.1), "cyclic_poisson_batches.*cycle=4"),
        (Banded(4, 20), CyclicPoisson(0.1, 3), "cycle=4"),
        (Banded(4, 20), Unknown(), "fixed_order_batches"),
        (TreeAggregation(), CyclicPoisson(0.1, 50), "fixed_order_batches"),
        (BufferedToeplitz(2, 20), WithReplacement(5, 50), "fixed_order_batches"),
    ],
)
def test_what_is_not_proven_is_refused(noise, sampling, remedy):
    run = CorrelatedRelease(1.0, noise)
    with pytest.raises(ValueError, match=remedy):
        check_covered(run, sampling)
    with pytest.raises(ValueError, match=remedy):
        accounting.epsilon([(run, sampling, 5)], 1e-5)


def test_independent_noise_may_use_the_new_samplings():
    step = accounting.GaussianRelease(2.0)
    cyclic = accounting.epsilon([(step, CyclicPoisson(0.2, 5), 50)], 1e-5)
    assert cyclic == accounting.epsilon([(step, Poisson(0.2), 10)], 1e-5)
    fixed = accounting.epsilon([(step, FixedOrder(5), 50)], 1e-5)
    assert fixed == accounting.epsilon([(step, Shuffled(5, 0.2), 50)], 1e-5)
