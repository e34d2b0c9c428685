"""The audit comes close to what is exact, and never above what is proven."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext import noise
from keras_dp_ext.accounting import FullBatch, GaussianRelease, Poisson, epsilon
from keras_dp_ext.analysis import PublishedBudget
from keras_dp_ext.audit import audit_mechanism
from keras_dp_ext.mechanisms import DPSGD, Directional, Encoded, Quantile, Tanh

NOISES = ("gaussian", "student-t", "laplace", "cauchy", "variance-gamma", "sech")


@pytest.mark.slow
def test_a_million_runs_of_dpsgd_reach_85_percent_of_the_exact_epsilon():
    audit = audit_mechanism(DPSGD(1.0, 1.0), delta=1e-5, runs=1_000_000)
    exact = epsilon([(GaussianRelease(1.0), FullBatch(), 1)], 1e-5, accountant="pld")
    assert audit.proven_epsilon == pytest.approx(exact)
    assert 0.85 * exact <= audit.epsilon <= exact


def test_few_runs_of_dpsgd_come_close_to_the_exact_epsilon():
    audit = audit_mechanism(DPSGD(3.0, 1.0), delta=1e-5, runs=40_000)
    assert 0.85 * audit.proven_epsilon <= audit.epsilon <= audit.proven_epsilon
    assert (audit.method, audit.verdict) == ("gaussian-dp", "holds")


def test_compositions_cost_what_the_accountant_says():
    audit = audit_mechanism(DPSGD(1.0, 2.0), runs=20_000, steps=6)
    exact = epsilon([(GaussianRelease(2.0), FullBatch(), 6)], 1e-5, accountant="pld")
    assert audit.proven_epsilon == pytest.approx(exact)
    assert 0.85 * exact <= audit.epsilon <= exact


def test_sampling_amplifies_but_not_beyond_what_is_claimed():
    audit = audit_mechanism(
        DPSGD(1.0, 0.5), runs=40_000, sampling_rate=0.3, steps=2, delta=1e-2
    )
    entry = GaussianRelease(0.5), Poisson(0.3), 2
    exact = epsilon([entry], 1e-2, accountant="pld")
    assert audit.method == "clopper-pearson"
    assert 0.5 * exact <= audit.epsilon <= exact
    whole = audit_mechanism(DPSGD(1.0, 0.5), runs=40_000, steps=2, delta=1e-2)
    assert audit.epsilon < 0.8 * whole.epsilon


def test_microbatches_double_the_measured_sensitivity():
    """A row that turns around moves the sum twice as far as one that appears."""
    single = audit_mechanism(DPSGD(1.0, 2.0), runs=40_000)
    grouped = audit_mechanism(DPSGD(1.0, 2.0), runs=40_000, examples_per_microbatch=4)
    assert grouped.mu == pytest.approx(2 * single.mu, rel=0.1)
    assert grouped.verdict == "holds"
    # What is claimed for single examples does not hold for groups.
    assert grouped.epsilon > 1.5 * single.proven_epsilon


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("size", [1, pytest.param(16, marks=pytest.mark.slow)])
def test_no_noise_is_worse_than_proven(name, size):
    mechanism = Encoded(noise=noise.get(name).with_scale(0.7))
    audit = audit_mechanism(mechanism, [(size,)], runs=20_000, delta=1e-3)
    assert audit.verdict == "holds"
    # The attack is a real one, and the claim not far from the truth.
    assert audit.epsilon > 0.4 * audit.proven_epsilon


@pytest.mark.parametrize(
    "mechanism",
    [Tanh(noise_multiplier=1.0), Directional(noise_multiplier=1.0)],
    ids=lambda mechanism: mechanism.name,
)
def test_proven_mechanisms_cost_as_much_as_dpsgd_and_no_more(mechanism):
    audit = audit_mechanism(mechanism, runs=20_000)
    assert 0.8 * audit.proven_epsilon <= audit.epsilon <= audit.proven_epsilon
    exact = epsilon([(GaussianRelease(1.0), FullBatch(), 1)], 1e-5, accountant="pld")
    assert audit.proven_epsilon == pytest.approx(exact)


def test_directional_axes_that_adapt_to_releases_cost_nothing():
    """The ellipsoid follows the noise; the adversary knows it and gains nothing."""
    mechanism = Directional(noise_multiplier=1.0, smoothing=0.2)
    audit = audit_mechanism(mechanism, [(3,), (2,)], runs=20_000, steps=4)
    assert 0.85 * audit.proven_epsilon <= audit.epsilon <= audit.proven_epsilon


def test_published_tanh_is_refuted_by_measurement():
    audit = audit_mechanism(Tanh(guarantee="published"), [(10,), (6,)], runs=20_000)
    assert audit.verdict == "published REFUTED"
    assert audit.epsilon > 4 * audit.published_epsilon
    # All coordinates saturate: the sensitivity is sqrt(16), as DESIGN says.
    assert audit.mu == pytest.approx(math.sqrt(16) / 1.1, rel=0.1)


# The direction is drawn at random: one seed might be a lucky one.
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("direction", ["gradient", "public"])
def test_published_directional_is_refuted_by_measurement(direction, seed):
    budget = PublishedBudget(1.0, 1e-5, sampling_rate=1.0, steps=1)
    if direction == "public":
        direction = [np.geomspace(1.0, 1e-4, 64)]
    mechanism = Directional(
        direction=direction, guarantee="published", published_budget=budget
    )
    audit = audit_mechanism(mechanism, [(64,)], runs=20_000, seed=seed)
    assert audit.published_epsilon >= budget.published_epsilon(1)
    assert audit.verdict == "published REFUTED"
    assert audit.epsilon > 1.2 * audit.published_epsilon


def test_denoising_is_post_processing():
    """Who sees only the denoised sum learns no more than who sees all."""
    mechanism = Encoded(noise=noise.Gaussian(scale=0.7))
    seen = audit_mechanism(mechanism, runs=400, stage="refine", delta=1e-2)
    assert seen.verdict == "holds"
    assert seen.epsilon > 0


def test_a_count_that_refining_takes_out_is_audited_before_it():
    with pytest.raises(ValueError, match='`stage` must be "noise"'):
        audit_mechanism(Quantile(), runs=100, stage="refine")


def test_an_optimizer_is_audited_at_its_own_size_and_stays_as_it_was():
    import keras

    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    optimizer = dp.optimizers.DirectionalSGD(noise_multiplier=1.0)
    model.compile(optimizer, loss="mse")
    optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in optimizer.variables]
    audit = audit_mechanism(optimizer, runs=2_000, steps=2)
    assert audit.num_parameters == model.count_params() == 8
    for variable, value in zip(optimizer.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_the_same_seed_gives_the_same_report():
    first, second = (audit_mechanism(DPSGD(), runs=500, seed=3) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(first.scores[0], second.scores[0])
    assert len(np.unique(first.scores[0])) == 500


def test_noise_that_is_not_a_number_hides_nothing():
    class Broken(DPSGD):
        def bound(self, gradients):
            # One large example breaks the whole sum.
            (total,) = gradients.sum_of(lambda rows: [tf.abs(r) for r in rows])
            return [tf.where(tf.reduce_max(total) > 6e5, float("nan"), 0.0 * total)]

    assert audit_mechanism(Broken(), runs=2_000).verdict == "REFUTED"


def test_summary_is_plain():
    summary = audit_mechanism(DPSGD(), runs=200).summary()
    assert "scores" not in summary
    assert {"epsilon", "proven_epsilon", "verdict"} <= set(summary)


@pytest.mark.parametrize(
    "arguments",
    [
        {"delta": 1.0},
        {"runs": 10},
        {"steps": 0},
        {"sampling_rate": 0.0},
        {"confidence": 1.0},
        {"stage": "bound"},
    ],
)
def test_arguments_out_of_range_are_refused(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"Argument `{name}`.*Received"):
        audit_mechanism(DPSGD(), **arguments)


def test_what_is_no_mechanism_is_refused():
    with pytest.raises(ValueError, match="Argument `mechanism`"):
        audit_mechanism("dpsgd")


def test_results_are_frozen():
    audit = audit_mechanism(DPSGD(), runs=200)
    with pytest.raises(dataclasses.FrozenInstanceError):
        audit.epsilon = 0.0


def test_a_mechanism_of_stages_is_attacked_as_the_class_is():
    """With the very vectors of its codebook, which a bound among the stages holds."""
    from keras_dp_ext.audit import neighbours

    codebook, student = dp.bounding.Codebook(size=10), noise.StudentT(9, 0.5)
    written = Encoded(codebook=codebook, noise=student)
    composed = dp.mechanisms.Composed(dp.bounding.Encoding(codebook), student)
    draws = np.random.default_rng(0).normal(size=[50, 20])
    attacks = [
        neighbours._candidates(one, one.claim(20), draws, np.ones(20))
        for one in (written, composed)
    ]
    assert len(attacks[0]) > 3
    for (row, _), (other, _) in zip(*attacks, strict=True):
        np.testing.assert_array_equal(row, other)
