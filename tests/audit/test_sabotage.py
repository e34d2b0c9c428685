"""Mistakes that would break privacy silently, each caught from outside."""

import numpy as np
import pytest
import tensorflow as tf

from keras_dp_ext.audit import audit_mechanism
from keras_dp_ext.mechanisms import DPSGD
from keras_dp_ext.optimizers import noise_source, private_step
from tests.audit import replay as harness
from tests.audit.replay import Replay
from tests.audit.test_replay import assert_noise_is_fresh


class HalvedNoise(DPSGD):
    """Adds half of the noise that it claims."""

    def draw_noise(self, shapes, seed, step):
        return [0.5 * noise for noise in super().draw_noise(shapes, seed, step)]


class ClippedSum(DPSGD):
    """Clips after summing: the classic misreading of Algorithm 1."""

    def bound(self, gradients):
        total = gradients.weighted_sum(tf.ones([gradients.num_rows]))
        factor = tf.minimum(1.0, self.l2_norm_clip / tf.linalg.global_norm(total))
        return [factor * value for value in total]


class ClippedByVariable(DPSGD):
    """Clips every variable to C and forgets that there are several."""

    def bound(self, gradients):
        def clip(rows):
            return [tf.clip_by_norm(row, self.l2_norm_clip, axes=[1]) for row in rows]

        return gradients.sum_of(clip)


class OneSeedForAllVariables(DPSGD):
    """Gives every variable the same noise, which differences cancel."""

    def draw_noise(self, shapes, seed, step):
        draw = super().draw_noise
        return [draw([shape], seed, step)[0] for shape in shapes]


class IgnoredSeed(DPSGD):
    """Draws the same noise in every release."""

    def draw_noise(self, shapes, seed, step):
        del seed
        return super().draw_noise(shapes, tf.constant([1, 2]), step)


@pytest.mark.parametrize(
    "mechanism",
    [HalvedNoise, ClippedSum, ClippedByVariable, OneSeedForAllVariables, IgnoredSeed],
)
def test_audit_refutes_a_broken_mechanism(mechanism):
    audit = audit_mechanism(
        mechanism(l2_norm_clip=1.0, noise_multiplier=1.0), [(4,), (4,)], runs=10_000
    )
    assert audit.verdict == "REFUTED"


def test_audit_of_the_honest_mechanism_at_the_same_settings_holds():
    audit = audit_mechanism(
        DPSGD(l2_norm_clip=1.0, noise_multiplier=1.0), [(4,), (4,)], runs=10_000
    )
    assert audit.verdict == "holds"


def test_a_sabotaged_method_of_the_very_object_is_seen():
    """The audit runs the object that it is given, not one like it."""
    mechanism = DPSGD(l2_norm_clip=1.0, noise_multiplier=1.0)
    honest = mechanism.draw_noise
    mechanism.draw_noise = lambda *args: [0.5 * value for value in honest(*args)]
    assert audit_mechanism(mechanism, runs=10_000).verdict == "REFUTED"


def test_replay_catches_clipping_after_summing():
    assert harness.worst_excess(Replay(ClippedSum), ("overpowering",)) > 1.5


def test_replay_catches_halved_noise():
    assert harness.worst_excess(Replay(HalvedNoise), ("huge",)) > 1.99


def test_division_by_the_realised_batch_size_is_refused(monkeypatch):
    """The guard sees that data reach the weights by another way than the sum."""
    register = private_step.register_release

    def counted(optimizer, losses):
        realised = tf.reduce_sum(tf.cast(losses != 0, tf.float32))
        monkeypatch.setattr(private_step, "expected_lot", lambda *_: realised)
        register(optimizer, losses)

    monkeypatch.setattr(private_step, "register_release", counted)
    with pytest.raises(ValueError, match="from the data"):
        harness.worst_excess(Replay(DPSGD), ("opposed",))


def test_replay_catches_noise_that_repeats(monkeypatch):
    monkeypatch.setattr(
        noise_source.NoiseSource, "take_number", lambda self: tf.constant(0)
    )
    replay = Replay(DPSGD, l2_norm_clip=0.5, noise_multiplier=1.5)
    np.testing.assert_allclose(*replay.noise(2), atol=1e-4)
    with pytest.raises(AssertionError):
        assert_noise_is_fresh(replay, deviation=0.75)


def test_replay_catches_an_example_that_is_let_through():
    """A bound that spares gradients which it cannot measure."""

    class Lenient(DPSGD):
        def bound(self, gradients):
            norm = tf.sqrt(gradients.norm_squared())
            factor = tf.where(norm > 100.0, 1.0, tf.minimum(1.0, 1.0 / norm))
            return gradients.weighted_sum(factor)

    assert harness.worst_excess(Replay(Lenient), ("huge",)) > 2
