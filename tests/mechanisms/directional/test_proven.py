"""Proven directional noise: always a Gaussian mechanism, whatever the axes are."""

import numpy as np
import pytest

from keras_dp_ext import analysis
from keras_dp_ext.accounting import events
from keras_dp_ext.mechanisms.directional import Directional

SHAPES = [(6, 4), (4,)]
DIRECTIONS = ["gradient", "uniform", "adaclip", [2.0, 0.1]]


def _rows(rng, rows=8, spread=3.0):
    """Rows whose coordinates differ in size by some decades."""
    size = 10 ** rng.uniform(-spread, 0, 28)
    flat = (rng.standard_normal((rows, 28)) * size).astype("float32")
    return [flat[:, :24].reshape(rows, 6, 4), flat[:, 24:]]


def _flat(tensors):
    return np.concatenate([np.ravel(t) for t in tensors])


def _train(mechanism, rng, steps=30):
    size = np.concatenate([np.logspace(-4, 0, 24), np.logspace(-4, 0, 4)])
    for step in range(steps):
        flat = (rng.standard_normal((64, 28)) * size + 0.3 * size).astype("float32")
        rows = [flat[:, :24].reshape(64, 6, 4), flat[:, 24:]]
        mechanism.release(rows, [step, 11])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_first_release_is_dp_sgd(harness, direction):
    rng = np.random.default_rng(0)
    rows = _rows(rng)
    h = harness(SHAPES, direction=direction, l2_norm_clip=0.8, noise_multiplier=1.5)
    norms = np.linalg.norm(np.hstack([r.reshape(8, -1) for r in rows]), axis=1)
    factor = np.minimum(1, 0.8 / norms)
    for ours, row in zip(h.bound(rows), rows, strict=True):
        np.testing.assert_allclose(ours, np.tensordot(factor, row, 1), atol=1e-5)
    deviation = np.std(h.noises(300))
    assert deviation == pytest.approx(1.2, rel=0.03)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("pruning_ratio", [None, 0.5])
def test_no_neighbour_is_further_than_the_clip_in_units_of_the_noise(
    harness, direction, pruning_ratio
):
    """The attack that breaks Eq. 13: put all of a row on the quietest coordinate."""
    rng = np.random.default_rng(1)
    h = harness(
        SHAPES,
        direction=direction,
        l2_norm_clip=0.8,
        noise_multiplier=0.7,
        pruning_ratio=pruning_ratio,
    )
    _train(h, rng)
    scales = _flat(h.scales())
    assert scales.max() / scales.min() > 3  # The axes have moved.
    deviation = np.std(h.noises(2500), axis=0)
    others = _rows(rng)
    base = _flat(h.bound(others))
    attacks = [np.eye(28)[i] * 10.0**p for i in range(28) for p in (-3, 0, 6, 18)]
    attacks += list(rng.standard_normal((20, 28)))
    for attack in attacks:
        attack = attack.astype("float32")[None]
        extra = [attack[:, :24].reshape(1, 6, 4), attack[:, 24:]]
        both = [np.concatenate(pair) for pair in zip(others, extra, strict=True)]
        change = np.abs(_flat(h.bound(both)) - base)
        released = deviation > 0
        assert np.all(change[~released] == 0)
        distance = np.linalg.norm(change[released] / deviation[released])
        # sum (g_i / (sigma C s_i))^2 <= 1 / sigma^2; deviations are estimated.
        assert distance <= 1 / 0.7 * 1.06


def test_a_row_that_overflows_only_in_scaled_units_is_dropped(harness):
    h = harness(SHAPES, direction="uniform", max_ratio=1e4)
    h.state["scale"].assign(np.full(h.state["scale"].shape, 1e-4))
    huge = [np.zeros((1, *shape), "float32") for shape in SHAPES]
    huge[0][0, 0, 0] = 1e18  # Squared: 1e36, finite; over the squared scale: not.
    assert np.all(np.isfinite(_flat(h.bound(huge))))
    assert np.linalg.norm(_flat(h.bound(huge))) <= 1e-4


def test_rows_of_nan_or_zeros_contribute_nothing(harness):
    rng = np.random.default_rng(2)
    h = harness(SHAPES, pruning_ratio=0.5)
    _train(h, rng, 5)
    rows = _rows(rng)
    reference = _flat(h.bound(rows))
    broken = _rows(rng, rows=3)
    broken[0][0, 2, 2] = np.nan
    broken[1][1, 0] = np.inf
    broken[0][2], broken[1][2] = 0.0, 0.0
    both = [np.concatenate(pair) for pair in zip(rows, broken, strict=True)]
    np.testing.assert_allclose(_flat(h.bound(both)), reference, atol=1e-6)


@pytest.mark.parametrize(
    ("direction", "exponent"), [("uniform", 1 / 3), ("adaclip", 1 / 4)]
)
def test_axes_approach_the_closed_form_when_the_signal_is_clear(
    harness, direction, exponent
):
    rng = np.random.default_rng(3)
    deviation = np.logspace(-1, 0.5, 28)
    h = harness(
        SHAPES,
        direction=direction,
        l2_norm_clip=1e3,
        noise_multiplier=1e-5,
        smoothing=0.99,
    )
    for step in range(400):
        flat = (rng.standard_normal((16, 28)) * deviation).astype("float32")
        h.release([flat[:, :24].reshape(16, 6, 4), flat[:, 24:]], [step, 1])
    expected = analysis.ellipsoid_scales(deviation**2, exponent=exponent)
    # The sum of 16 rows has 16 times the second moment; a factor does not matter.
    np.testing.assert_allclose(_flat(h.scales()), expected, rtol=0.15)


def test_public_weights_give_important_variables_less_noise(harness):
    rng = np.random.default_rng(4)
    h = harness([(50,), (50,)], direction=[8.0, 1.0], noise_multiplier=0.1)
    for step in range(50):
        flat = (0.1 * rng.standard_normal((64, 100))).astype("float32")
        h.release([flat[:, :50], flat[:, 50:]], [step, 1])
    important, other = h.scales()
    # s ~ (v / w)^(1/3): a weight of 8 halves the noise.
    assert np.mean(other) / np.mean(important) == pytest.approx(2.0, rel=0.15)


def test_noise_alone_leaves_the_axes_nearly_equal(harness):
    """No evidence, no direction: pure noise must not shape the ellipsoid."""
    h = harness([(400,)], direction="gradient")
    nothing = [np.zeros((4, 400), "float32")]
    for step in range(200):
        h.release(nothing, [step, 7])
    (scales,) = h.scales()
    assert np.percentile(scales, 99) / np.percentile(scales, 1) < 3
    assert np.sqrt(np.mean(scales**2)) == pytest.approx(1.0, rel=0.2)


def test_axes_depend_on_released_values_only(harness):
    """Two data sets that happen to release the same value lead to the same axes."""
    first, second = (harness(SHAPES, direction="gradient") for _ in range(2))
    released = [
        np.random.default_rng(5).standard_normal(s).astype("f4") for s in SHAPES
    ]
    first.bound(_rows(np.random.default_rng(6)))
    second.bound(_rows(np.random.default_rng(7)))
    for h in (first, second):
        h.mechanism.refine(released, 0)
    np.testing.assert_array_equal(_flat(first.scales()), _flat(second.scales()))


def test_axes_stay_within_the_ratio_and_finite_under_extreme_releases(harness):
    h = harness(SHAPES, direction="gradient", max_ratio=100.0)
    for size in (0.0, 1e-30, 1e6, 1e15, 1e-6):
        h.mechanism.refine([np.full(s, size, "float32") for s in SHAPES], 0)
        scales = _flat(h.scales())
        assert np.all((scales >= 0.01 * (1 - 1e-5)) & (scales <= 100 * (1 + 1e-5)))


def test_claim_is_that_of_dp_sgd_for_every_direction():
    for direction in DIRECTIONS:
        mechanism = Directional(direction=direction, noise_multiplier=0.9)
        assert mechanism.claim(1000).proven == events.GaussianRelease(0.9)
        assert mechanism.claim(1000).published is None
        assert mechanism.claim(1000, 8).proven == events.GaussianRelease(0.45)
        assert mechanism.recorded_events(1) is None


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("direction", "sideways"),
        ("direction", 3.0),
        ("l2_norm_clip", 0.0),
        ("noise_multiplier", float("nan")),
        ("guarantee", None),
        ("smoothing", 1.0),
        ("max_ratio", 0.5),
        ("pruning_ratio", 1.0),
    ],
)
def test_arguments_out_of_range_are_named(argument, value):
    with pytest.raises(ValueError, match=f"Argument `{argument}`"):
        Directional(**{argument: value})


def test_public_weights_must_fit_the_variables(harness):
    with pytest.raises(ValueError, match="one entry for each of the 2"):
        harness(SHAPES, direction=[1.0])
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        harness(SHAPES, direction=[1.0, [1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="typo"):
        harness(SHAPES, direction={"v0": 2.0, "typo": 1.0})
    h = harness(SHAPES, direction={"v1": [1.0, 2.0, 3.0, 4.0]})
    assert len(h.scales()) == 2


def test_configuration_makes_an_equal_mechanism():
    mechanism = Directional(direction=[np.ones((2, 2)), 3.0], pruning_ratio=0.9)
    config = mechanism.get_config()
    assert config["direction"] == [[[1.0, 1.0], [1.0, 1.0]], 3.0]
    assert Directional(**config).get_config() == config
