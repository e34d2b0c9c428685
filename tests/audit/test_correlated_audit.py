"""No attack on a whole run finds more than is claimed, and some find nearly as much."""

import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.audit import audit_mechanism

NOISES = {
    "banded": dp.noise.Banded(bands=3, steps=5, scale=3.0),
    "inverse": dp.noise.BandedInverse(bands=3, scale=3.0),
    "buffered": dp.noise.BufferedToeplitz(buffers=2, steps=5, scale=3.0),
    "tree": dp.noise.TreeAggregation(scale=3.0),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_audit_of_a_run_comes_close_to_the_claim_and_not_above(noise):
    mechanism = dp.mechanisms.Composed(bound=dp.bounding.L2Clip(1.0), noise=noise)
    audit = audit_mechanism(mechanism, [(4,)], runs=30_000, steps=5, delta=1e-3)
    assert audit.verdict == "holds"
    assert 0.8 * audit.proven_epsilon < audit.epsilon <= audit.proven_epsilon


def test_the_audit_catches_too_little_noise():
    class Quiet(dp.mechanisms.Composed):
        def draw_noise(self, shapes, seed, step):
            return [0.4 * value for value in super().draw_noise(shapes, seed, step)]

    mechanism = Quiet(bound=dp.bounding.L2Clip(1.0), noise=NOISES["banded"])
    audit = audit_mechanism(mechanism, [(4,)], runs=30_000, steps=5, delta=1e-3)
    assert audit.epsilon > audit.proven_epsilon


def test_sampling_is_refused():
    mechanism = dp.mechanisms.Composed(noise=NOISES["tree"])
    with pytest.raises(ValueError, match="every release of a run"):
        audit_mechanism(mechanism, steps=2, sampling_rate=0.5)
    assert np.isfinite(mechanism.noise_multiplier)
