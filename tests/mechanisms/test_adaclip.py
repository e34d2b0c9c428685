"""AdaClip against a NumPy reading of its Algorithms 1 and 2, and its bound."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import GaussianRelease
from keras_dp_ext.mechanisms import AdaClip

SHAPES = [(3, 2), (2,)]
SIZE = 8


class State:
    """A mechanism with variables of its own, outside of any optimizer."""

    def __init__(self, rows=4, **arguments):
        self.mechanism = AdaClip(**arguments)
        self.variables = {}
        self.mechanism.build([tf.zeros(shape) for shape in SHAPES], self._add)
        self.mechanism.use_lot_size(rows)

    def _add(self, shape, dtype, name, initializer, saved=True):
        self.variables[name] = tf.Variable(tf.zeros(shape, dtype))
        return self.variables[name]

    def release(self, rows, noise):
        """One release with the given noise, in units of the bound."""
        total = self.mechanism.bound(dp.gradients.MaterializedGradients(split(rows)))
        scales = self.mechanism._scales()
        noised = [
            part + self.mechanism.noise_multiplier * scale * n[0]
            for part, scale, n in zip(total, scales, split(noise[None]), strict=True)
        ]
        return flat(self.mechanism.refine(noised, tf.constant(0, tf.int64)))


def split(rows):
    rows = np.asarray(rows, np.float32)
    return [rows[:, :6].reshape(-1, 3, 2), rows[:, 6:]]


def flat(parts):
    return np.concatenate([np.ravel(part) for part in parts])


def published(lots, noises, sigma, gamma, h1=1e-12, h2=10.0, beta1=0.99, beta2=0.9):
    """Algorithms 1 and 2 of Pichapati et al., for the mean over a lot."""
    m, variance = np.zeros(SIZE), np.full(SIZE, np.sqrt(h1 * h2))
    for rows, noise in zip(lots, noises, strict=True):
        s = np.sqrt(variance)
        b = np.sqrt(s) * np.sqrt(s.sum()) / np.sqrt(gamma)
        w = (rows - m) / b
        w /= np.maximum(1.0, np.linalg.norm(w, axis=1, keepdims=True))
        noised = b * (w.sum(axis=0) + sigma * noise) / len(rows) + m
        v = len(rows) * ((noised - m) ** 2 - (b * sigma / len(rows)) ** 2)
        variance = beta2 * variance + (1 - beta2) * np.clip(v, h1, h2)
        yield len(rows) * noised
        m = beta1 * m + (1 - beta1) * noised


@pytest.mark.parametrize("gamma", [0.01, 1.0])
def test_releases_are_those_of_the_paper(gamma):
    rng = np.random.default_rng(0)
    lots = rng.normal(1.0, [0.1, 0.2, 1, 2, 3, 0.01, 0.5, 1], [12, 4, SIZE])
    noises = rng.normal(size=[12, SIZE])
    state = State(noise_multiplier=0.7, gamma=gamma)
    ours = [state.release(rows, n) for rows, n in zip(lots, noises, strict=True)]
    theirs = list(published(lots, noises, 0.7, gamma))
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)


def test_no_row_moves_the_sum_by_more_than_the_bound():
    """Whatever was released before, and however extreme the row."""
    rng = np.random.default_rng(1)
    state = State(noise_multiplier=0.5, gamma=0.3)
    for _ in range(6):
        state.release(rng.normal(3.0, 1.0, [4, SIZE]), rng.normal(size=SIZE))
        scales = flat(state.mechanism._scales())
        assert np.all(np.isfinite(scales)) and np.all(scales > 0)
        others = rng.normal(3.0, 1.0, [3, SIZE])
        base = flat(
            state.mechanism.bound(dp.gradients.MaterializedGradients(split(others)))
        )
        for row in (
            *(rng.normal(size=[1, SIZE]) * 10.0**power for power in (-30, 0, 20, 37)),
            np.full([1, SIZE], 3.4e38),
            np.full([1, SIZE], np.inf),
            np.zeros([1, SIZE]),
        ):
            with np.errstate(over="ignore"):
                both = np.concatenate([others, row.astype(np.float32)])
            total = flat(
                state.mechanism.bound(dp.gradients.MaterializedGradients(split(both)))
            )
            assert np.linalg.norm((total - base) / scales) <= 1 + 1e-4, row


def test_padding_adds_nothing_although_the_centre_is_not_zero():
    state = State()
    state.release(np.ones([4, SIZE]), np.zeros(SIZE))
    rows = np.ones([2, SIZE])
    padded = np.concatenate([rows, np.zeros([5, SIZE])])
    one, other = (
        flat(state.mechanism.bound(dp.gradients.MaterializedGradients(split(r))))
        for r in (rows, padded)
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_it_costs_what_dp_sgd_costs():
    claim = AdaClip(noise_multiplier=1.3).claim(num_parameters=100)
    assert claim.proven == GaussianRelease(1.3)
    several = AdaClip(noise_multiplier=1.3).claim(100, examples_per_microbatch=2)
    assert several.proven == GaussianRelease(0.65)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_fit_learns_and_a_reload_goes_on(jit_compile, tmp_path):
    x = np.random.default_rng(0).normal(size=[512, 3]).astype("float32")
    y = x @ np.array([[1.0], [-2.0], [0.5]], "float32") + 3.0
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.AdaClipSGD(
        learning_rate=0.05, noise_multiplier=0.5, gamma=0.5
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    lots = dp.data.poisson_batches(x, y, batch_size=128)
    before = model.evaluate(x, y, verbose=0)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    model.fit(lots, epochs=40, verbose=0, callbacks=[accountant])
    assert model.evaluate(x, y, verbose=0) < before / 3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.gamma == 0.5
    np.testing.assert_allclose(
        flat(loaded.optimizer.mechanism._scales()),
        flat(optimizer.mechanism._scales()),
        rtol=1e-5,
    )


class Quiet(AdaClip):
    """Adds half of the noise that it claims."""

    def draw_noise(self, shapes, seed, step):
        return [0.5 * noise for noise in super().draw_noise(shapes, seed, step)]


def test_an_audit_tells_the_honest_from_one_that_is_not():
    honest = dp.audit.audit_mechanism(AdaClip(noise_multiplier=1.0), runs=20_000)
    assert honest.verdict == "holds"
    quiet = dp.audit.audit_mechanism(Quiet(noise_multiplier=1.0), runs=20_000)
    assert quiet.verdict != "holds"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 0.0}, "`gamma` must be in"),
        ({"gamma": 2.0}, "`gamma` must be in"),
        ({"mean_decay": 1.0}, "`mean_decay` must be in"),
        ({"least_variance": 20.0}, "must not exceed"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdaClip(**arguments)
