"""The statistics of an attack: exact, and never too sure."""

import argparse

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from keras_dp_ext import audit as audit_lib
from keras_dp_ext.audit import confidence
from keras_dp_ext.audit import confidence as stats_lib
from keras_dp_ext.audit.threshold import best_threshold
from keras_dp_ext.cli import audit as command


@pytest.mark.parametrize("successes", [0, 1, 7, 99, 100])
def test_clopper_pearson_inverts_the_binomial_tails(successes):
    low, high = confidence.clopper_pearson(successes, 100, error=0.01)
    if successes > 0:
        assert stats.binom.sf(successes - 1, 100, low) == pytest.approx(0.01)
    else:
        assert low == 0
    if successes < 100:
        assert stats.binom.cdf(successes, 100, high) == pytest.approx(0.01)
    else:
        assert high == 1


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0, 30.0])
def test_gaussian_epsilon_is_that_of_the_privacy_loss_distribution(mu):
    exact = privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=1e-3 * max(1.0, mu)
    )
    epsilon = confidence.gaussian_epsilon(mu, 1e-5)
    assert epsilon <= exact.get_epsilon_for_delta(1e-5) + 1e-9
    assert epsilon == pytest.approx(exact.get_epsilon_for_delta(1e-5), rel=0.01)


def test_gaussian_epsilon_is_zero_where_delta_pays_for_everything():
    total_variation = 2 * stats.norm.cdf(0.5 / 2) - 1
    assert confidence.gaussian_epsilon(0.5, total_variation * 1.001) == 0
    assert confidence.gaussian_epsilon(0.5, total_variation * 0.999) > 0


@pytest.mark.filterwarnings("error")
def test_gaussian_noise_has_no_epsilon_without_delta():
    assert confidence.gaussian_epsilon(0.5, 0.0) == np.inf
    assert confidence.gaussian_epsilon(0.0, 0.0) == 0


def test_rates_on_the_boundary_give_back_their_epsilon():
    """Randomised response attains the bound, in both directions."""
    for epsilon in (0.3, 1.0, 5.0):
        rate = 1 / (1 + np.exp(-epsilon))
        assert confidence.epsilon_from_rates(rate, 1 - rate, 0.0) == pytest.approx(
            epsilon
        )
    fpr = np.linspace(0, 1, 101)
    tpr = confidence.true_positive_bound(fpr, 1.3, 1e-3)
    inner = (fpr > 0) & (tpr < 1)
    found = confidence.epsilon_from_rates(tpr[inner], fpr[inner], 1e-3)
    np.testing.assert_allclose(found, 1.3, rtol=1e-9)


def test_mu_of_a_gaussian_test_is_its_distance():
    for threshold in (-1.0, 0.3, 2.0):
        tpr, fpr = stats.norm.sf(threshold - 1.7), stats.norm.sf(threshold)
        assert confidence.gaussian_mu(tpr, fpr) == pytest.approx(1.7)


@pytest.mark.parametrize("method", ["clopper-pearson", "gaussian-dp"])
def test_the_bound_fails_no_more_often_than_promised(method):
    """At 90% confidence, in repeated experiments, against the exact epsilon."""
    rng = np.random.default_rng(0)
    exact = confidence.gaussian_epsilon(1.0, 0.01)
    above = 0
    for _ in range(200):
        absent, present = rng.normal(size=1000), rng.normal(1.0, size=1000)
        found = best_threshold(absent, present, 0.01, error=0.1, methods=[method])
        above += found.epsilon > exact
    assert stats.binom.sf(above - 1, 200, 0.1) > 1e-4


def test_a_threshold_chosen_on_pure_chance_shows_nothing():
    """Scores without information: choosing among thousands must not fake any."""
    rng = np.random.default_rng(1)
    wrong = sum(
        best_threshold(*rng.normal(size=[2, 500]), delta=0.0, error=0.05).epsilon > 0
        for _ in range(200)
    )
    assert stats.binom.sf(wrong - 1, 200, 0.05) > 1e-4


def test_certainty_is_bounded_by_the_number_of_runs():
    """A perfect attack on n runs still cannot exclude log(n) or so."""
    found = best_threshold(np.zeros(2000), np.ones(2000), delta=0.0, error=0.05)
    assert found.epsilon == pytest.approx(
        np.log(0.025 ** (1 / 1000) / 3.68e-3), rel=0.01
    )


def test_scores_that_are_not_numbers_count_against_the_mechanism():
    absent, present = np.zeros(1000), np.full(1000, np.nan)
    assert best_threshold(absent, present, 0.0, 0.05).epsilon > 4


def test_errors_of_all_audits_of_a_command_add_up_to_what_was_asked_for(monkeypatch):
    """Under the null, the command refutes something with the promised probability.

    Twelve mechanisms release nothing and claim an epsilon of 0; each audit guesses by
    the toss of a coin. Without a correction for their number, one of them would be
    refuted far too often.
    """
    rng = np.random.default_rng(3)
    runs, asked, commands = 500, 0.2, 300

    def audit(mechanism, shapes, *, confidence, **_):
        said_present = rng.binomial(runs, 0.5, size=2)
        (_, fpr), (tpr, _) = (
            stats_lib.clopper_pearson(count, runs, (1 - confidence) / 2)
            for count in said_present
        )
        epsilon = float(stats_lib.epsilon_from_rates(tpr, fpr, 0.0))
        return audit_lib.MechanismAudit(
            mechanism=mechanism,
            epsilon=epsilon,
            proven_epsilon=0.0,
            published_epsilon=0.0,
            delta=0.0,
            confidence=confidence,
            method="clopper-pearson",
            true_positive_rate=float(tpr),
            false_positive_rate=float(fpr),
            mu=None,
            runs=runs,
            steps=1,
            sampling_rate=1.0,
            num_parameters=len(shapes),
            scores=(),
        )

    def commands_that_refute():
        arguments = argparse.Namespace(
            **{
                "mechanism": None,
                "guarantee": None,
                "runs": runs,
                "delta": 0.0,
                "steps": 1,
            },
            **{"parameters": 4, "sampling_rate": 1.0, "seed": 0, "json": True},
            confidence=1 - asked,
        )
        return sum(command.run(arguments) for _ in range(commands))

    monkeypatch.setattr(audit_lib, "audit_mechanism", audit)
    twelve = [(f"mechanism {number}", "null") for number in range(12)]
    monkeypatch.setattr(command, "_mechanisms", lambda arguments: iter(twelve))
    assert stats.binom.sf(commands_that_refute() - 1, commands, asked) > 1e-4
    # The experiment can tell: without the correction it is another figure.
    monkeypatch.setattr(stats_lib, "confidence_of_each", lambda joint, count: joint)
    assert stats.binom.sf(commands_that_refute() - 1, commands, asked) < 1e-4
