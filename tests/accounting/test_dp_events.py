"""dp_accounting's own accountant agrees with ours on the events that we hand out."""

import dp_accounting
import pytest

from keras_dp_ext.accounting import (
    Claim,
    FullBatch,
    FullBatchRelease,
    GaussianRelease,
    Ledger,
    NoiseRelease,
    Poisson,
    ScheduledRelease,
    Shuffled,
    WithReplacement,
    epsilon_pld,
)
from keras_dp_ext.accounting.claim import lot_claim
from keras_dp_ext.noise import Gaussian, Laplace

DELTA = 1e-5


def theirs(event):
    return dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(DELTA)


def of_one(claim, sampling, releases):
    ledger = Ledger(lambda: releases)
    ledger.open(0, claim, sampling)
    return ledger


CLAIMS = {
    "gaussian": Claim(GaussianRelease(1.1)),
    "noise": Claim(NoiseRelease(Gaussian(2.0), ([0.6, 0.8],))),
    "two on a lot": lot_claim([(Claim(GaussianRelease(2.0)), 2)], 2),
    "with a full batch": lot_claim(
        [
            (Claim(GaussianRelease(1.5)), 1),
            (Claim(FullBatchRelease(GaussianRelease(90.0))), 1),
        ],
        1,
    ),
    "scheduled": Claim(
        ScheduledRelease((0, 70), (GaussianRelease(1.0), GaussianRelease(2.0)))
    ),
}


@pytest.mark.parametrize("sampling", [Poisson(0.01), FullBatch(), Shuffled(50, 0.02)])
@pytest.mark.parametrize("name", CLAIMS)
def test_their_epsilon_is_ours(name, sampling):
    claim = CLAIMS[name]
    ledger = of_one(claim, sampling, 200)
    ours = ledger.epsilon(delta=DELTA)
    assert theirs(ledger.to_dp_event()) == pytest.approx(ours, rel=0.01)
    assert theirs(claim.to_dp_event(sampling, 200)) == pytest.approx(ours, rel=0.01)


def test_several_streams_are_one_event():
    ledger = of_one(CLAIMS["gaussian"], Poisson(0.01), 500)
    ledger.add(Claim(GaussianRelease(8.0)), FullBatch())
    event = ledger.to_dp_event()
    ours = ledger.epsilon(delta=DELTA)
    assert theirs(event) == pytest.approx(ours, rel=0.01)
    pld = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA)
    assert pld == pytest.approx(ledger.epsilon(delta=DELTA, accountant="pld"), rel=0.01)


def test_releases_of_one_lot_are_amplified_once():
    event = CLAIMS["two on a lot"].to_dp_event(Poisson(0.01), 200)
    assert event.count == 100
    assert event.event.event.noise_multiplier == pytest.approx(2.0 / 2**0.5)


def test_overflow_is_told():
    claim, sampling = CLAIMS["gaussian"], Poisson(0.01, overflow_delta=1e-8)
    with pytest.warns(UserWarning, match="at delta - 2e-06"):
        event = claim.to_dp_event(sampling, 200)
    added = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(DELTA - 2e-6)
    # Our own figure comes from the losses of full lots, and is a little lower.
    ours = epsilon_pld([(claim.proven, sampling, 200)], DELTA)
    assert 0.9 * added < ours <= added


@pytest.mark.parametrize(
    "claim,sampling,match",
    [
        (Claim(NoiseRelease(Laplace(1.0), ([1.0],))), Poisson(0.1), "Laplace"),
        (CLAIMS["gaussian"], WithReplacement(10, 100), "WithReplacement"),
    ],
)
def test_what_they_have_no_event_for_is_an_error(claim, sampling, match):
    with pytest.raises(NotImplementedError, match=f"dp_accounting has .*{match}"):
        claim.to_dp_event(sampling)
    with pytest.raises(NotImplementedError, match="dp_accounting has"):
        of_one(claim, sampling, 3).to_dp_event()


def test_nothing_released_and_no_noise():
    assert Ledger().to_dp_event() == dp_accounting.NoOpDpEvent()
    event = Claim(GaussianRelease(0.0)).to_dp_event(Poisson(0.1), 2)
    assert theirs(event) == float("inf")
