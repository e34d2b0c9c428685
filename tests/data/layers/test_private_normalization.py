"""Private means and deviations: right, bounded whatever the data, and in the ledger."""

import math

import keras
import numpy as np
import pytest
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.accounting import FullBatch, GaussianRelease
from keras_dp_ext.data import PrivateNormalization
from keras_dp_ext.data.layers.private_normalization import bounded, norm_histograms

RNG = np.random.default_rng(0)
MEAN, DEVIATION = np.array([3.0, -1.0, 0.0]), np.array([1.0, 0.2, 4.0])
X = (MEAN + DEVIATION * RNG.normal(size=[4000, 2, 3])).astype("float32")


def adapted(data=X, seed=1, **arguments) -> PrivateNormalization:
    layer = PrivateNormalization(**arguments)
    layer.adapt(data, noise_seed=seed)
    return layer


def test_without_noise_and_clip_it_is_keras_normalization():
    layer = adapted(noise_multiplier=0.0, l2_norm_clip=(1e9, 1e9))
    expected = keras.layers.Normalization()
    expected.adapt(X)
    np.testing.assert_allclose(layer(X), expected(X), rtol=1e-3, atol=1e-4)


def test_private_means_are_near_the_true_ones():
    y = adapted(noise_multiplier=1.0)(X).numpy()
    np.testing.assert_allclose(y.mean(axis=(0, 1)), 0.0, atol=0.3)
    np.testing.assert_allclose(y.std(axis=(0, 1)), 1.0, rtol=0.3)


def test_every_entry_of_several_axes_has_its_own_mean():
    shifted = X + np.array([0.0, 100.0])[:, np.newaxis]
    layer = adapted(shifted, axis=(1, 2), noise_multiplier=0.0)
    np.testing.assert_allclose(
        layer.mean.numpy()[1] - layer.mean.numpy()[0], 100.0, atol=1.0
    )
    assert layer(shifted).shape == X.shape


def test_scales_and_power():
    plain = adapted(noise_multiplier=0.0, l2_norm_clip=(1e9, 1e9))
    scaled = adapted(noise_multiplier=0.0, l2_norm_clip=(1e9, 1e9), scales=DEVIATION)
    np.testing.assert_allclose(scaled(X), plain(X), rtol=1e-3, atol=1e-4)
    half = adapted(noise_multiplier=0.0, l2_norm_clip=(1e9, 1e9), power=0.5)
    ratio = half(X).numpy().std(axis=(0, 1)) / np.sqrt(DEVIATION)
    np.testing.assert_allclose(ratio, 1.0, rtol=0.05)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e5, 1e200, np.inf, np.nan])
def test_no_example_moves_the_sums_by_more_than_the_bound(size):
    """By brute force: also examples that no honest person has."""
    moments = np.abs(RNG.standard_cauchy(size=[2, 500, 7])) * size
    rows = bounded(moments, (0.3, 2.0))
    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows, axis=1).max() <= math.sqrt(2 + 1 / 16) * (1 + 1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e300, np.inf, np.nan])
def test_an_example_is_in_one_bin_of_each_histogram_at_most(size):
    histograms = norm_histograms(np.full([2, 1, 3], size))
    assert histograms.sum(axis=1).max() <= 1
    assert np.linalg.norm(histograms) <= math.sqrt(2)


@pytest.mark.parametrize("clip", [None, (2.0, 4.0)])
def test_noise_covers_the_worst_neighbour(clip, monkeypatch):
    """An attack: a canary joins, and everything that is drawn is compared.

    Each release, in units of its noise, moves by a vector; the squares of their
    lengths sum to at most (1 / noise_multiplier)**2, what the ledger accounts for.
    """
    from keras_dp_ext.data.layers import private_normalization as module

    multiplier = 3.0
    drawn = []

    class Recorder:
        def __init__(self, _):
            pass

        def normal(self, size):
            # The noise enters as a multiple of this, so that it shows its scale.
            drawn.append(np.ones(size))
            return drawn[-1]

    releases = []
    true_sum = sum

    def recorded(terms):
        releases.append(true_sum(terms))
        return releases[-1]

    monkeypatch.setattr(module.np.random, "Generator", Recorder)
    monkeypatch.setattr(module, "sum", recorded, raising=False)
    canaries = [np.full([1, 2, 3], 1e4), np.zeros([1, 2, 3]), -X[:1] * 40]
    layer = PrivateNormalization(noise_multiplier=multiplier, l2_norm_clip=clip)
    layer.adapt(X)
    scales = [
        multiplier * math.sqrt(10) * math.sqrt(2),
        multiplier / math.sqrt(0.9) * math.sqrt(2 + 1 / 16),
    ]
    if clip is not None:
        scales = [multiplier * math.sqrt(2 + 1 / 16)]
    without = list(releases)
    for canary in canaries:
        releases.clear()
        PrivateNormalization(noise_multiplier=multiplier, l2_norm_clip=clip).adapt(
            np.concatenate([X, canary])
        )
        cost = true_sum(
            np.sum(((a - b) / scale) ** 2)
            for a, b, scale in zip(releases, without, scales, strict=True)
        )
        assert 0 < cost <= multiplier**-2 * (1 + 1e-9)


def test_the_noise_that_is_drawn_is_the_noise_that_is_claimed():
    """Over many adapts the mean has the deviation that follows from the claim."""
    multiplier, clips = 20.0, (4.0, 20.0)
    rows = X[:, :1]
    means = np.array(
        [
            adapted(
                rows, seed, noise_multiplier=multiplier, l2_norm_clip=clips
            ).mean.numpy()
            for seed in range(150)
        ]
    ).reshape([150, 3])
    weights = bounded(np.stack([rows[:, 0], rows[:, 0] ** 2]), clips)[:, -1].sum() * 4
    expected = multiplier * math.sqrt(2 + 1 / 16) * clips[0] / weights
    # The noised number of examples, which divides, adds a little.
    assert means.std(axis=0).min() > 0.85 * expected
    assert stats.kurtosis(means, axis=None) < 3


def test_the_release_is_in_the_ledger_by_itself_and_survives_saving(tmp_path):
    layer = adapted(noise_multiplier=4.0)
    model = keras.Sequential(
        [keras.Input([2, 3]), layer, keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    optimizer = dp.optimizers.DPSGD(noise_multiplier=2.0, l2_norm_clip=1.0)
    model.compile(optimizer, loss="mse", jit_compile=True)
    lots = dp.data.poisson_batches(X, X[:, 0, :1], batch_size=400)
    model.fit(lots, epochs=1, verbose=0)
    entries = [
        (GaussianRelease(4.0), FullBatch(), 1),
        (GaussianRelease(2.0), lots.dp_sampling.sampling, 10),
    ]
    expected = dp.accounting.epsilon(entries, 1e-5)
    assert dp.accounting.epsilon_of(model, 1e-5) == pytest.approx(expected, rel=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert dp.accounting.epsilon_of(loaded, 1e-5) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(
        loaded.predict(X, verbose=0), model.predict(X, verbose=0)
    )
    assert loaded.layers[0].get_config() == layer.get_config()


def test_the_account_agrees_with_dp_accounting():
    from dp_accounting import dp_event, pld

    layer = adapted(noise_multiplier=4.0)
    (release,) = layer.privacy_releases()
    ours = dp.accounting.epsilon(
        [(release.claim.proven, release.sampling, release.count)], 1e-5, "pld"
    )
    theirs = pld.PLDAccountant()
    theirs.compose(dp_event.GaussianDpEvent(4.0))
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-2)


def test_channels_that_noise_drowns_stay_finite_and_are_not_dropped():
    constant = np.zeros([100, 5], "float32")
    y = adapted(constant, noise_multiplier=50.0)(constant).numpy()
    assert np.isfinite(y).all()
    assert np.isfinite(adapted(constant, noise_multiplier=0.0)(constant)).all()


def test_broken_arguments_are_refused():
    for arguments, message in (
        ({"axis": 0}, "`axis`"),
        ({"axis": (1, -2)}, "`axis`"),
        ({"scales": [1.0, 2.0]}, "`scales`"),
        ({"scales": 0.0}, "`scales`"),
        ({"power": 2.0}, "`power`"),
        ({"l2_norm_clip": (1.0,)}, "`l2_norm_clip`"),
        ({"noise_multiplier": -1.0}, "`noise_multiplier`"),
    ):
        with pytest.raises(ValueError, match=message):
            adapted(**arguments)
    with pytest.raises(ValueError, match="at least one example"):
        PrivateNormalization().adapt(X[:0])
    with pytest.raises(ValueError, match="each example once"):
        PrivateNormalization().adapt(dp.data.poisson_batches(X, batch_size=100))
