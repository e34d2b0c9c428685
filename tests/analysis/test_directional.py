"""The closed form of directional noise, its erratum, and the published budget."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import optimize

import keras_dp_ext as dp
from keras_dp_ext import analysis
from keras_dp_ext.analysis.published_budget import best_tau


def _proven_epsilon(noise_multiplier, budget):
    accountant = rdp.RdpAccountant()
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(
            budget.sampling_rate, dp_accounting.GaussianDpEvent(noise_multiplier)
        ),
        budget.steps,
    )
    return accountant.get_epsilon(budget.delta)


@pytest.fixture
def mnist_budget():
    """LeNet on MNIST, Table 1, with epsilon 1 and a share of 1/8 for w."""
    return analysis.published_budget(1.0, 1e-5, 55_000, lot_size=512, epochs=60)


def test_published_mnist_budget_gives_the_figures_of_the_design(mnist_budget):
    assert mnist_budget.gradient_tau == pytest.approx(0.0135, abs=5e-5)
    assert mnist_budget.isotropic_multiplier == pytest.approx(8.61, abs=5e-3)


def test_isotropic_noise_of_the_budget_is_better_than_published(mnist_budget):
    proven = _proven_epsilon(mnist_budget.isotropic_multiplier, mnist_budget)
    assert proven == pytest.approx(0.32, abs=0.01)
    assert proven < mnist_budget.gradient_epsilon == 7 / 8


def test_noise_as_printed_has_no_meaningful_epsilon(mnist_budget):
    """The released direction is almost pure noise; its least entry decides."""
    rng = np.random.default_rng(0)
    size = 61_706
    smallest = np.mean(
        [
            analysis.directional_noise(
                rng.standard_normal(size), mnist_budget.gradient_tau
            ).noise_multiplier
            for _ in range(200)
        ]
    )
    # The least of many |z| is exponential with mean sqrt(pi / 2) / size, and
    # sigma_i / alpha = sqrt(E|z|^(4/3) / tau) |z_i|^(1/3).
    moment = 2 ** (2 / 3) * math.gamma(7 / 6) / math.sqrt(math.pi)
    expected = (
        mnist_budget.isotropic_multiplier
        * math.sqrt(moment)
        * math.gamma(4 / 3)
        * (math.sqrt(math.pi / 2) / size) ** (1 / 3)
    )
    assert smallest == pytest.approx(expected, rel=0.1)
    assert expected == pytest.approx(0.19, abs=0.005)
    # Even at 0.22, a lucky draw, what is released is not private.
    assert _proven_epsilon(0.22, mnist_budget) == pytest.approx(660, rel=0.05)


def test_tau_is_the_best_over_all_integer_betas():
    rng = np.random.default_rng(1)
    for _ in range(50):
        epsilon = 10 ** rng.uniform(-2, 2)
        delta = 10 ** rng.uniform(-9, -1)
        beta = np.arange(1, 200_000)
        brute = np.max(2 * (epsilon + np.log(delta) / beta) / (100 * (1 + beta)))
        if brute > 0:
            assert best_tau(epsilon, delta, 100) == pytest.approx(brute, rel=1e-12)


def test_published_epsilon_of_the_whole_run_is_the_budget(mnist_budget):
    assert mnist_budget.published_epsilon(mnist_budget.steps) == pytest.approx(1.0)
    half = mnist_budget.published_epsilon(mnist_budget.steps // 2)
    assert 0 < half < 1


def test_equation_13_does_not_find_the_worst_neighbour():
    weights = np.array([1.0, 4.0])
    printed = analysis.directional_noise(weights, 1.0, rule="printed")
    corrected = analysis.directional_noise(weights, 1.0, rule="corrected")
    printed_value = analysis.minimised_cost(weights, printed.shift)
    corrected_value = analysis.minimised_cost(weights, corrected.shift)
    assert printed_value == pytest.approx(2.858, abs=5e-4)
    assert corrected_value == pytest.approx(2.924, abs=5e-4)

    angles = np.linspace(0, np.pi / 2, 100_001)
    sphere = np.stack([np.cos(angles), np.sin(angles)])
    best = np.max(np.sum(np.cbrt(sphere * weights[:, None]) ** 2, axis=0))
    assert corrected_value == pytest.approx(best, rel=1e-9)


def test_isotropic_noise_is_optimal_under_an_l2_ball():
    noise = analysis.directional_noise([0.1, 1.0, 30.0], 0.04, 2.0, rule="corrected")
    np.testing.assert_allclose(noise.standard_deviation, 2.0 / 0.2)
    assert noise.noise_multiplier == pytest.approx(5.0)


def test_printed_noise_honours_its_constraint_only_for_its_own_neighbour():
    weights = np.array([0.01, 1.0, 2.0])
    noise = analysis.directional_noise(weights, tau=0.25, sensitivity=3.0)
    own = np.sum(np.square(noise.shift / noise.standard_deviation))
    assert own == pytest.approx(0.25)
    quietest = np.square(3.0 / noise.standard_deviation.min())
    assert quietest > 4 * 0.25
    assert noise.noise_multiplier == pytest.approx(quietest**-0.5)


def test_equation_11_and_12_solve_the_problem_for_a_given_neighbour():
    weights = np.array([0.3, 1.0, 2.5])
    noise = analysis.directional_noise(weights, tau=0.5)
    result = optimize.minimize(
        lambda log_sigma: np.sum(weights * np.exp(log_sigma)),
        np.zeros(3),
        constraints={
            "type": "ineq",
            "fun": lambda log_sigma: (
                0.5 - np.sum(np.square(noise.shift / np.exp(log_sigma)))
            ),
        },
        method="SLSQP",
        options={"ftol": 1e-13},
    )
    np.testing.assert_allclose(noise.standard_deviation, np.exp(result.x), rtol=1e-3)
    # Stationarity of Eq. 9 at lambda: |w_i| = 2 lambda Delta_i^2 / sigma_i^3.
    np.testing.assert_allclose(
        weights,
        2
        * noise.lagrange_multiplier
        * np.square(noise.shift)
        / noise.standard_deviation**3,
    )


@pytest.mark.parametrize(
    ("exponent", "cost"),
    [(1 / 3, lambda w, s: np.sum(w * s)), (1 / 4, lambda w, s: np.sum(s**2))],
)
def test_ellipsoid_axes_minimise_their_cost_at_the_same_clipped_norm(exponent, cost):
    rng = np.random.default_rng(5)
    moments = 10 ** rng.uniform(-6, 0, 12)
    weights = np.ones(12) if exponent == 1 / 4 else rng.uniform(0.1, 5, 12)
    scales = analysis.ellipsoid_scales(moments, weights, exponent)
    assert np.sum(moments / scales**2) == pytest.approx(moments.sum())
    for _ in range(200):
        other = scales * np.exp(rng.normal(0, 0.3, 12))
        other *= np.sqrt(np.sum(moments / other**2) / moments.sum())
        assert cost(weights, other) >= cost(weights, scales) * (1 - 1e-12)
    assert cost(weights, scales) <= cost(weights, np.ones(12))


def test_weights_of_a_public_pca_are_those_of_numpy_and_train(tmp_path):
    import keras

    rng = np.random.default_rng(0)
    public = rng.normal(size=[500, 5]) @ rng.normal(size=[5, 5])
    all_of_it = analysis.principal_weights(public)
    deviations = public.std(axis=0)
    np.testing.assert_allclose(all_of_it, deviations / deviations.max(), rtol=1e-10)
    values, vectors = np.linalg.eigh(np.cov(public.T))
    leading = np.sqrt((values[-2:] * vectors[:, -2:] ** 2).sum(axis=1))
    two = analysis.principal_weights(public, components=2)
    np.testing.assert_allclose(two, leading / leading.max(), rtol=1e-10)

    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3, name="head")])
    kernel = model.layers[0].kernel.path
    direction = {kernel: np.repeat(two[:, None], 3, axis=1)}
    model.compile(
        dp.optimizers.DirectionalSGD(learning_rate=0.1, direction=direction), "mse"
    )
    x = public.astype("float32")
    lots = dp.data.poisson_batches(x, x[:, :3], batch_size=50)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-4)
    log = model.fit(lots, verbose=0, callbacks=[accountant])
    assert 0 < log.history["epsilon"][-1] < 5


@pytest.mark.parametrize(
    ("features", "components"),
    [(np.ones(3), None), (np.ones([4, 2]), None), (np.eye(3), 4), (np.eye(3), 0)],
)
def test_features_without_principal_components_are_refused(features, components):
    with pytest.raises(ValueError, match="Argument"):
        analysis.principal_weights(features, components)
