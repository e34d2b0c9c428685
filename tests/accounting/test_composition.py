"""Abadi et al., Figure 2, and what it looks like today."""

import matplotlib
import pytest

from keras_dp_ext.accounting import composition
from keras_dp_ext.accounting.plot import plot_compositions

FIGURE_2 = {"noise_multiplier": 4.0, "rate": 0.01, "steps": 10_000, "delta": 1e-5}


def test_figure_2_at_100_epochs():
    figures = composition.compare(**FIGURE_2)
    assert figures["moments"] == pytest.approx(1.26, abs=0.005)
    assert figures["strong"] == pytest.approx(9.34, abs=0.02)
    assert figures["basic"] > figures["strong"] > figures["moments"]
    assert figures["moments"] > figures["rdp"] > figures["pld"]


def test_strong_composition_is_far_looser_with_an_amplification_that_is_proven():
    proven = composition.strong_composition(**FIGURE_2, amplification="proven")
    assert proven > 2.5 * composition.strong_composition(**FIGURE_2)


def test_the_published_amplification_is_not_a_bound():
    # Random response: one bit, told truthfully with odds exp(epsilon), on a
    # sample. The true epsilon is log(1 + q (exp(epsilon) - 1)).
    published = composition.amplified(2.0, 0.01)
    proven = composition.amplified(2.0, 0.01, "proven")
    assert published < proven
    assert composition.amplified(1000.0, 0.5, "proven") == pytest.approx(
        1000.0 - 0.6931, abs=1e-3
    )


@pytest.mark.parametrize("sigma", [0.5, 4.0, 50.0])
def test_the_exact_gaussian_epsilon_is_that_of_dp_accounting(sigma):
    import dp_accounting

    assert composition.gaussian_epsilon(sigma, 1e-5, "exact") == pytest.approx(
        dp_accounting.get_epsilon_gaussian(sigma, 1e-5), abs=1e-6
    )


def test_nothing_released_costs_nothing():
    figures = composition.compare(4.0, 0.01, 0, 1e-5)
    assert set(figures.values()) == {0.0}


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="compositions"):
        composition.compare(**FIGURE_2, compositions=["wishful"])
    with pytest.raises(ValueError, match="amplification"):
        composition.amplified(1.0, 0.1, "wishful")
    with pytest.raises(ValueError, match="rule"):
        composition.gaussian_epsilon(1.0, 1e-5, "wishful")
    with pytest.raises(ValueError, match="noise_multiplier"):
        composition.strong_composition(0.0, 0.1, 10, 1e-5)


def test_the_figure_shows_what_was_computed():
    matplotlib.use("agg")
    axes = plot_compositions(epochs=100, points=2, compositions=["strong", "moments"])
    lines = {line.get_label(): line.get_ydata()[-1] for line in axes.get_lines()}
    assert lines["moments accountant"] == pytest.approx(1.26, abs=0.005)
    assert lines["strong composition"] == pytest.approx(9.34, abs=0.02)
    matplotlib.pyplot.close(axes.figure)
