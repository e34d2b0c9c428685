"""Pictures of attacks show what the samples can tell."""

import numpy as np
import pytest

from keras_dp_ext.audit import plot_roc
from keras_dp_ext.audit.roc import Roc

pytest.importorskip("matplotlib").use("Agg")


def test_curves_begin_where_ten_negatives_are_accused():
    rng = np.random.default_rng(0)
    roc = Roc(rng.normal(1.0, size=400), rng.normal(size=1000))
    axes = plot_roc({"attack": roc}, epsilon=3.0)
    (curve,) = [line for line in axes.lines if line.get_label().startswith("attack")]
    rates = curve.get_xdata()
    assert rates.min() == pytest.approx(0.01) and rates.max() == 1.0
    assert axes.get_xlim()[0] == pytest.approx(0.01)


def test_a_handful_of_samples_can_be_drawn():
    roc = Roc(np.array([1.0, 2.0]), np.array([0.0, 1.5, 3.0]))
    assert plot_roc({"attack": roc}, epsilon=1.0).get_xlim()[0] <= 0.5
