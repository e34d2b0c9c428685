"""One example moves the released sum by no more than is claimed: nowhere, never."""

import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.mechanisms import DPSGD, Directional, Encoded, Tanh
from tests.audit import replay as harness
from tests.audit.replay import LOT, TOLERANCE, Replay

MECHANISMS = {
    "dpsgd": (DPSGD, {"l2_norm_clip": 0.5, "noise_multiplier": 1.5}),
    "tanh": (Tanh, {"l2_norm_clip": 0.5, "noise_multiplier": 1.5}),
    "tanh as published": (Tanh, {"output_range": 0.3, "guarantee": "published"}),
    "directional": (Directional, {"l2_norm_clip": 0.5, "smoothing": 0.5}),
    "encoding": (Encoded, {"denoise": None}),
    "encoding, exact": (Encoded, {"denoise": None, "ranking": "exact"}),
}
SETTINGS = {
    "single examples": {},
    "microbatches of two": {"num_microbatches": LOT // 2},
    "lots of two batches": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_example_moves_the_sum_by_no_more_than_claimed(name, setting):
    mechanism, arguments = MECHANISMS[name]
    replay = Replay(mechanism, **arguments, **SETTINGS[setting])
    excess = harness.worst_excess(replay)
    assert excess <= 1 + TOLERANCE
    if not name.startswith("encoding") and name != "tanh as published":
        # The neighbours are hard enough to use up what is allowed.
        assert excess > 0.9


@pytest.mark.parametrize("direction", ["gradient", "public weights"])
def test_axes_that_were_learnt_keep_the_claim(direction):
    """After some releases the ellipsoid is not a ball any more."""
    if direction == "public weights":
        shapes = [v.shape for v in harness.make_model().trainable_variables]
        direction = [
            np.geomspace(1.0, 1e-4, np.prod(shape)).reshape(shape) for shape in shapes
        ]
    replay = Replay(
        Directional, direction=direction, smoothing=0.3, noise_multiplier=0.02
    )
    common, _ = harness.neighbours("random")
    for _ in range(3):
        replay.keep(*common)
    deviation = replay.deviation()
    assert np.max(deviation) > 2 * np.min(deviation)
    assert harness.worst_excess(replay) <= 1 + TOLERANCE


@pytest.mark.parametrize("name", ["dpsgd", "directional", "encoding"])
def test_replicas_share_one_bound_and_one_noise(name, mirrored):
    mechanism, arguments = MECHANISMS[name]
    two = Replay(mechanism, mirrored, **arguments)
    assert mirrored.num_replicas_in_sync == 2
    assert harness.worst_excess(two, ("random", "huge", "opposed")) <= 1 + TOLERANCE
    one = Replay(mechanism, **arguments)
    lot, _ = harness.neighbours("random")
    np.testing.assert_allclose(two.released(*lot), one.released(*lot), atol=1e-4)


# A training with correlated noise is one release: see test_correlated_audit.py.
PUBLIC = sorted(
    name
    for name in dp.optimizers.__all__
    if hasattr(getattr(dp.optimizers, name), "mechanism_class")
    and getattr(dp.optimizers, name).mechanism_class.default_sampling == "poisson"
)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_optimizer_keeps_its_claim(name):
    """Seen where the noised sum leaves the pipeline, whatever the base makes of it."""
    optimizer_class = getattr(dp.optimizers, name)
    arguments = {"denoise": None} if "Encoded" in name else {}
    replay = Replay(
        optimizer_class.mechanism_class, base=optimizer_class.base_class, **arguments
    )
    assert type(replay.optimizer) is optimizer_class
    seen = tf.Variable(tf.zeros([replay.num_parameters]))
    refine = replay.optimizer.mechanism.refine

    def spy(noised, step):
        flat = tf.concat([tf.reshape(value, [-1]) for value in noised], axis=0)
        # What follows are statistics, which have noise and audits of their own.
        seen.assign(flat[: replay.num_parameters])
        return refine(noised, step)

    replay.optimizer.mechanism.refine = spy
    for kind in ("opposed", "huge", "not a number"):
        sums = []
        for lot in harness.neighbours(kind):
            replay.released(*lot)
            sums.append(seen.numpy().astype(np.float64))
        assert replay.excess(sums[0] - sums[1]) <= 1 + TOLERANCE


def test_noise_of_every_release_is_fresh_and_as_large_as_claimed():
    replay = Replay(DPSGD, l2_norm_clip=0.5, noise_multiplier=1.5)
    assert_noise_is_fresh(replay, deviation=0.75)


def test_lots_get_noise_once():
    replay = Replay(
        DPSGD, l2_norm_clip=0.5, noise_multiplier=1.5, gradient_accumulation_steps=2
    )
    assert_noise_is_fresh(replay, deviation=0.75)


def assert_noise_is_fresh(replay, deviation, releases=60):
    """Size, and independence of releases and of coordinates, each at 6 sigma."""
    noise = replay.noise(releases) / deviation
    count = noise.size
    assert abs(np.mean(noise**2) - 1) < 6 * np.sqrt(2 / count)
    for other in (np.roll(noise, 1, axis=0), np.roll(noise, 1, axis=1)):
        assert abs(np.mean(noise * other)) < 6 / np.sqrt(count)
    correlations = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.max(np.abs(correlations)) < 6 / np.sqrt(releases)


def test_padding_is_not_told_from_absence():
    """An empty lot releases exactly the noise of a lot of padding."""
    replay = Replay(DPSGD)
    (x, y, _), _ = harness.neighbours("random")
    nobody = np.zeros(LOT, "float32")
    np.testing.assert_array_equal(
        replay.released(x, y, nobody), replay.released(0 * x, y, nobody)
    )
    assert np.any(replay.released(x, y, nobody) != 0)


def test_keras_clipping_of_the_update_is_not_the_bound():
    """`clipnorm` acts on what has been noised; the claim stays the same."""
    plain = Replay(DPSGD)
    clipped = Replay(DPSGD, clipnorm=1e-3)
    assert plain.optimizer.privacy_claim() == clipped.optimizer.privacy_claim()
    lot, _ = harness.neighbours("random")
    # Keras clips the average of each variable; the learning rate is 1.
    most = LOT * 1e-3 * np.sqrt(len(clipped.model.trainable_variables))
    assert np.linalg.norm(clipped.released(*lot)) == pytest.approx(most, rel=1e-3)
    assert np.linalg.norm(plain.released(*lot)) > 2 * most
