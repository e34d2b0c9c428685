"""Epsilon and noise from plain numbers, checked against dp_accounting."""

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

import keras_dp_ext as dp

MNIST = {"num_examples": 60_000, "batch_size": 256, "epochs": 60, "delta": 1e-5}


def independent_epsilon(sigma, steps, rate=256 / 60_000, delta=1e-5):
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    event = dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    accountant = RdpAccountant().compose(event, steps)
    return accountant.get_epsilon(delta)


def test_epsilon_of_plain_numbers():
    value = dp.accounting.epsilon(noise_multiplier=1.1, **MNIST)
    assert value == pytest.approx(independent_epsilon(1.1, 60 * 234), rel=1e-3)
    steps = {**MNIST, "epochs": None, "steps": 60 * 234}
    assert dp.accounting.epsilon(noise_multiplier=1.1, **steps) == value


def test_entries_of_a_ledger_are_still_accepted():
    entry = dp.accounting.GaussianRelease(1.1), dp.accounting.Poisson(256 / 60_000), 99
    assert dp.accounting.epsilon([entry], 1e-5) == pytest.approx(
        independent_epsilon(1.1, 99), rel=1e-3
    )


@pytest.mark.parametrize("target", [0.5, 3.0, 20.0])
def test_calibrated_noise_spends_the_budget_and_no_more(target):
    sigma = dp.accounting.calibrate(target, **MNIST)
    spent = independent_epsilon(sigma, 60 * 234)
    assert 0.99 * target < spent <= target


def test_shuffled_data_needs_more_noise():
    poisson = dp.accounting.calibrate(3.0, **MNIST)
    assert dp.accounting.calibrate(3.0, sampling="shuffled", **MNIST) > 5 * poisson


def test_the_tighter_accountant():
    tight = dp.accounting.epsilon(noise_multiplier=1.1, accountant="pld", **MNIST)
    assert tight < dp.accounting.epsilon(noise_multiplier=1.1, **MNIST)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": None}, "`epochs` or `steps` is needed"),
        ({"steps": 3}, "not both"),
        ({"batch_size": 70_000}, "must not exceed"),
        ({"num_examples": 0}, "positive integer"),
        ({"sampling": "random"}, "must be one of poisson"),
    ],
)
def test_wrong_numbers(changes, message):
    with pytest.raises(ValueError, match=message):
        dp.accounting.calibrate(3.0, **{**MNIST, **changes})


def test_missing_numbers_are_named():
    with pytest.raises(ValueError, match="`num_examples`, `batch_size`"):
        dp.accounting.epsilon(noise_multiplier=1.0)
