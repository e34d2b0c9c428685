"""`secure_noise=True`: a cryptographic stream, and no secrets in the last bits."""

import numpy as np
import pytest
import tensorflow as tf
from reliability_models import dense_model
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext.noise import secure, uniform

NOISES = (
    dp.noise.Gaussian(2.0),
    dp.noise.StudentT(df=9),
    dp.noise.Laplace(0.5),
    dp.noise.Cauchy(1.0),
    dp.noise.VarianceGamma(1.0),
    dp.noise.HyperbolicSecant(1.0),
)


def words(hexadecimal):
    return tf.constant(np.frombuffer(bytes.fromhex(hexadecimal), "<u4"))


def test_the_stream_is_the_chacha20_of_rfc_8439():
    # Section 2.3.2: key 00..1f, block 1.
    key = words("".join(f"{byte:02x}" for byte in range(32)))
    expected = words(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    nonce = words("000000090000004a00000000")
    block = secure.chacha20(key, nonce, 1, counter=1)
    np.testing.assert_array_equal(block[0], expected)
    compiled = tf.function(secure.chacha20, jit_compile=True)
    np.testing.assert_array_equal(compiled(key, nonce, 3)[1], expected)


def test_no_two_calls_share_a_stream():
    source = secure.stream(tf.zeros([8], tf.uint32))
    seeds = [tf.constant([0, 0]), tf.constant([0, 0]), tf.constant([1, 0])]
    streams = [source(64, seed).numpy() for seed in seeds]
    assert len(np.unique(np.concatenate(streams))) == 192


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_the_distribution_is_the_accountants(noise):
    key = tf.constant(np.arange(8), tf.uint32)
    with uniform.drawing_from(secure.stream(key)):
        sample = noise.sample([20_000], tf.constant([7, 0]))
    assert sample.dtype == tf.float64
    assert stats.kstest(sample.numpy(), noise.cdf).pvalue > 1e-3


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_the_grid_is_public_and_finer_than_a_millionth_of_the_noise(noise):
    with uniform.drawing_from(secure.constant_words):
        scale = np.abs(noise.sample([3], tf.constant([0, 0])).numpy())
    # Both coordinates of a point in the plane: none may be left without a grid.
    np.testing.assert_allclose(scale, scale[0], rtol=1e-12)
    assert 0.4 < scale[0] / noise.scale < 2.5


def released(secure_noise, total, draws=20_000):
    """What one release of `draws` coordinates of the same sum looks like."""
    optimizer = dp.optimizers.DPSGD(
        l2_norm_clip=1.0, noise_multiplier=1.0, secure_noise=secure_noise, noise_seed=1
    )
    kept = []
    optimizer.mechanism.refine = lambda noised, step: kept.append(noised[0]) or noised
    variable = tf.Variable(tf.zeros([draws]))
    optimizer.build([variable])
    sums = [tf.fill([draws], total)]
    optimizer._release.add_batch(sums, [], [variable], 1.0, optimizer._apply_average)
    return kept[0].numpy()


def suspicious(values):
    """Mironov's distinguisher, for a sum of 0 against a sum of 1.

    A float32 near -1 is a multiple of 2**-24, so that 1 + noise is one as well. Of
    the outputs near zero, those that are not such multiples cannot come from 1.
    """
    small = values[np.abs(values) < 2.0**-5].astype(np.float64)
    assert len(small) > 100
    return np.mean(small * 2.0**24 != np.round(small * 2.0**24))


def test_last_bits_tell_the_sum_without_secure_noise():
    # The attack that `secure_noise` is there for, on what it is not there for.
    assert suspicious(released(False, 0.0)) > 0.8
    assert suspicious(released(False, 1.0)) == 0.0


def test_last_bits_tell_nothing_with_secure_noise():
    assert suspicious(released(True, 0.0)) == 0.0
    assert suspicious(released(True, 1.0)) == 0.0
    # All bits that are left, of sums that are no multiples of anything: their
    # distribution on the grid is the same.
    grid = 2.0**-secure.GRID_BITS
    remainders = [
        np.round(released(True, total) / grid).astype(np.int64) % 64
        for total in (0.0, 1 / 3)
    ]
    counts = [np.bincount(r, minlength=64) for r in remainders]
    assert stats.chi2_contingency(np.stack(counts)).pvalue > 1e-3
    for total in (0.0, 1 / 3):
        values = released(True, total)
        np.testing.assert_array_equal(values, np.round(values / grid) * grid)
        assert stats.kstest(values - total, stats.norm.cdf).pvalue > 1e-3


def test_a_mechanism_with_a_generator_of_its_own_is_refused():
    class Homemade(dp.mechanisms.DPSGD):
        def draw_noise(self, shapes, seed, step):
            return [tf.random.stateless_normal(shape, seed) for shape in shapes]

    import keras

    optimizer = dp.optimizers.make_private(keras.optimizers.SGD, Homemade)(
        secure_noise=True
    )
    model = dense_model()
    model.compile(optimizer, loss="mse", jit_compile=False)
    with pytest.raises(ValueError, match="secure_noise"):
        model.train_on_batch(np.zeros((8, 4)), np.zeros((8, 1)))


CORRELATED = {
    "banded": dp.noise.Banded(bands=3, steps=6, scale=2.0),
    "inverse": dp.noise.BandedInverse(bands=3, scale=2.0),
    "buffered": dp.noise.BufferedToeplitz(buffers=2, steps=6, scale=2.0),
    "tree": dp.noise.TreeAggregation(scale=2.0),
}


@pytest.mark.parametrize(
    ("name", "jit_compile"), [*((name, False) for name in CORRELATED), ("tree", True)]
)
def test_correlated_noise_is_its_strategy_and_on_the_grid(name, jit_compile):
    """Also if the key changes in between, as it does when a process forks."""
    import keras

    noise, size, steps = CORRELATED[name], 8_000, 6
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=dp.bounding.L2Clip(1.0),
        noise=noise,
        secure_noise=True,
        learning_rate=1.0,
    )
    variable = keras.Variable(np.zeros(size, np.float32))
    optimizer.build([variable])

    @tf.function(jit_compile=jit_compile)
    def release():
        optimizer._release.add_batch(
            [tf.zeros([size])], [], [variable], 1.0, optimizer._apply_average
        )

    rows = []
    for step in range(steps):
        if step == 3:
            optimizer._noise_source.renew()
        variable.assign(np.zeros(size, np.float32))
        release()
        rows.append(-variable.numpy().astype(np.float64))
    grid = 2.0 ** (1 - secure.GRID_BITS)
    remainders = np.array(rows) / grid
    np.testing.assert_array_equal(remainders, np.round(remainders))
    z = noise.encode(np.array(rows)) / noise.scale
    np.testing.assert_allclose(z @ z.T / size, np.eye(steps), atol=8 / np.sqrt(size))
    assert stats.kstest(z.ravel(), stats.norm.cdf).pvalue > 1e-6


def test_a_secure_training_with_correlated_noise_keeps_wide_memories():
    import keras

    optimizer = dp.optimizers.BandMFSGD(bands=3, steps=6, secure_noise=True)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).normal(size=[30, 3]).astype("float32")
    lots = dp.data.cyclic_poisson_batches(x, x[:, :1], batch_size=5, cycle=3)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2)
    model.fit(lots, epochs=2, verbose=0, callbacks=[accountant])
    assert np.isfinite(model.get_weights()[0]).all()
    (memory,) = optimizer.mechanism._memory
    assert memory.dtype == "float64"
    assert np.abs(memory.numpy()).max() > 0
